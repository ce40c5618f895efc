"""Make a fine-tuned model small and fast, score every candidate on your rows, keep the best."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engines.cpu import cpu
from ..options import DataOptions, TaskOptions
from . import arguments as flags
from . import console
from .compress_arguments import add_compress_options, take_compress_options

if TYPE_CHECKING:
    from ..compression.story import CompressionResult
    from ..compression.trial import Measured


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--model_name_or_path", metavar="DIR", help="fine-tuned transformers folder")
    parser.add_argument("--output_dir", required=True, metavar="DIR", help="where best/, candidates/, result.json go")
    parser.add_argument("--overwrite_output_dir", action="store_true", help="replace an earlier result")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_compress_options(parser)
    flags.add_options(parser, DataOptions)
    flags.add_options(parser, TaskOptions)


def run(arguments: argparse.Namespace) -> int:
    """Compress, print."""
    options, given = take_compress_options(arguments)
    data = flags.take(arguments, DataOptions)
    task_options = flags.take(arguments, TaskOptions)
    from ..compression.divide import Data
    from ..compression.report import as_json
    from ..compression.story import compress, expect_met

    train, dev, test = (_rows(data, split) for split in ("train", "dev", "test"))
    rows = Data(train, dev, test, flags.columns(data))
    result = compress(
        arguments.model_name_or_path,
        arguments.output_dir,
        rows,
        options,
        task_options=task_options,
        given=given,
        overwrite=arguments.overwrite_output_dir,
        progress=console.progress(),
    )
    if arguments.json:
        console.emit(as_json(result))
    else:
        show(result, Path(arguments.output_dir))
    expect_met(result, options)
    return 0


def _rows(data: DataOptions, split: str) -> Any:
    """Rows of a split; a data set need not have all of them."""
    if data.dataset is not None and getattr(data, flags.FILES[split]) is None and split == "test":
        return None  # test rows of public data sets carry no labels
    return flags.rows(data, split)


def show(result: CompressionResult, output: Path) -> None:
    """Print the table, the choice and where the result lies."""
    fp32 = result.fp32
    head = ["", result.source.task.metric, "drop", "same answer", "|Δlogit|", "MB", "% of FP32"]
    head += [f"× FP32, batch {batch}" for batch in fp32.seconds]
    rows = [["FP32", _points(fp32.score), "", "", "", f"{fp32.size / 1e6:.1f}", "100", *["1.00" for _ in fp32.seconds]]]
    for one in sorted(result.candidates, key=lambda one: one.name != result.best.name):
        rows.append(_line(one, one.name == result.best.name, fp32.size))
    where = f"{result.rows.counts['scoring']} rows ({result.rows.chosen_on}), CPU class {cpu().cpu_class}"
    console.table(f"{result.source.name}: {where}; times with one thread, FP32 on {fp32.engine}", head, rows)
    for name, twin in result.same.items():
        print(f"{name} is the same as {twin}.")
    print(f"Best: {result.best.name}. {result.choice.rule}")
    for name, reason in result.choice.reasons.items():
        print(f"  not {name}: {reason}")
    _show_float(result)
    if result.sensitivity:
        print("Harm of single layers in INT8 (mean |Δlogit|), the largest first:")
        for name, harm in list(result.sensitivity.items())[:10]:
            print(f"  {harm:.4f}  {name}")
    if result.test is not None:
        before, after = result.test
        print(f"Test rows, which chose nothing: FP32 {_points(before)}, best {_points(after)}.")
    for one in result.candidates:
        if one.evaluation:
            _show_evaluation(one, fp32.size)
    print(f"The artifact is {output / 'best'}. Next: laconic predict {output / 'best'}")


def _line(one: Measured, is_best: bool, fp32_size: int) -> list[str]:
    drop, change = one.comparison.drop, one.comparison.mean_abs_logit_change
    return [
        f"{one.name}{' *' if is_best else ''}",
        _points(one.score),
        "" if drop is None else f"{console.points(drop.drop)} ({console.interval((drop.low, drop.high))})",
        f"{100 * one.comparison.same_answer:.2f} %",
        "" if change is None else f"{change:.4f}",
        f"{one.size / 1e6:.1f}",
        f"{100 * one.size / fp32_size:.1f}",
        *[f"{ratio:.2f}" for ratio, _, _ in one.speed.values()],
    ]


def _points(scored: Any) -> str:
    return "not scored" if scored is None else console.points(scored.value)


def _show_float(result: CompressionResult) -> None:
    """Say in one line what stayed float, by reason."""
    from ..quant_map import REASONS

    quant_map = result.best.candidate.quant_map
    by_reason: dict[str, list[str]] = {}
    for name, reason in quant_map.left_float.items():
        by_reason.setdefault(reason, []).append(name)
    counts = [f"{len(names)} {REASONS[reason]}" for reason, names in by_reason.items()]
    done = f"{len(quant_map.layers)} layers and {len(quant_map.tables)} tables are INT8"
    print(f"{done}; float: {'; '.join(counts) or 'none'}.")


def _show_evaluation(one: Measured, fp32_size: int) -> None:
    rows = []
    for threads, (before, after) in one.evaluation.items():
        rows.append([f"evaluation, {threads} thread(s), s", f"{before:.1f}", f"{after:.1f}"])
    size = ["file size, MB", f"{fp32_size / 1e6:.1f}", f"{one.size / 1e6:.1f}"]
    console.table(f"{one.name}, before and after", ["", "FP32", "INT8"], [size, *rows])
