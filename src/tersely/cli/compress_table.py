"""What `tersely compress` prints: one table, the choice and its reasons, what it costs and gains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from ..compression.choice import Measured
from ..compression.evaluator import Tested
from ..compression.result import CompressionResult
from ..engines.cpu import cpu
from ..measure.benchmark import threads_text
from ..measure.tables import interval, points
from ..quant_map import REASONS
from ..report import REPORTS, FinishedRun, read_run
from ..report.answer import nothing_pruned
from ..report.ladder import ladder, ladder_summary
from ..report.markup import plain
from . import console

WIDTH = 100


def show(result: CompressionResult, output: Path) -> None:
    """Print all of it; the notes went to standard error before."""
    _show_candidates(result)
    _show_pruned(result)
    _show_choice(result)
    _show_gain(result)
    _show_layers(result)
    if result.test is not None:
        _show_test(result.test)
    for measured in result.candidates:
        if measured.evaluation:
            _show_evaluation(measured, result)
    run = read_run(output)
    _show_ladder(run)
    for line in nothing_pruned(run):
        print(line)
    best = result.best
    print(
        f"The artifact is {output / 'best'}: {_megabytes(best.size)} MB are loaded, {_megabytes(best.folder_size)} MB "
        "is the whole folder."
    )
    if (output / REPORTS[0]).is_file():
        print(f"The report is {output / REPORTS[0]}; for terminals {REPORTS[1]} beside it.")
    print(f"Next: tersely predict {output / 'best'}")


def _show_candidates(result: CompressionResult) -> None:
    fp32, counts = result.fp32, result.rows.counts
    head = ["", result.source.task.metric, "drop", "95 % interval", "same answer %", "|Δlogit|", "MB", "% of FP32"]
    head += [*(f"× FP32, batch {batch}" for batch in fp32.seconds), *(["× at target"] if result.setting else [])]
    first = ["FP32", _points(fp32.score), "", "", "", "", _megabytes(fp32.size), "100.0"]
    rows = [[*first, *["1.00" for _ in head[len(first) :]], ""]]
    head.append("Pareto")
    for measured in sorted(result.candidates, key=lambda measured: measured.name != result.best.name):
        mark = "*" if measured.name in result.pareto else ""
        rows.append([*_line(measured, measured.name == result.best.name, fp32.size), mark])
    has_trained = any(parent.pruned or parent.distilled or parent.trained for parent in result.parents)
    trained = f", {counts['train']} rows trained" if has_trained else ""
    trained += f", {counts['unlabelled']} unlabelled rows" if counts["unlabelled"] else ""
    calibrated = f", {counts['calibration']} rows calibrated" if counts["calibration"] else ""
    chosen = f"{counts['scoring']} {result.rows.chosen_on}"
    title = f"{result.source.model_name}: {chosen}{trained}{calibrated}; CPU class {cpu().cpu_class}"
    console.table(title, head, rows)
    used = ", ".join(f"{engine} at batch {batch}" for batch, engine in fp32.engines.items())
    if len(set(fp32.engines.values())) == 1:
        used = next(iter(fp32.engines.values()))
    print(f"Scores and drops in points. × FP32: times as fast as the fastest FP32 engine ({used}), one thread.")
    if (at := result.setting) is not None:
        print(f"× at target: batch {at.batch}, length {at.length}, {threads_text(at.threads)}; it chooses.")
    print("Pareto *: no other candidate is as good in score, speed and size and better in one of them.")
    for name, twin in result.same.items():
        print(f"{name} is the same as {twin}.")
    if result.screened:
        print(f"Left out after a look at a few rows: {', '.join(candidate.name for candidate in result.screened)}.")
    if any(measured.emulated for measured in result.candidates):
        classes = ", ".join(result.best.candidate.quant_map.cpu_classes)
        print(f"The graphs are for CPUs of the classes {classes}: scored here with exact sums in floats.")


def _line(measured: Measured, is_best: bool, fp32_size: int) -> list[str]:
    drop, change = measured.comparison.drop, measured.comparison.mean_abs_logit_change
    return [
        f"{measured.name}{' (best)' if is_best else ''}",
        _points(measured.score),
        "" if drop is None else points(drop.drop),
        "" if drop is None else interval((drop.low, drop.high)),
        f"{100 * measured.comparison.same_answer:.2f}",
        "" if change is None else f"{change:.4f}",
        _megabytes(measured.size),
        f"{100 * measured.size / fp32_size:.1f}",
        *[
            f"{ratio:.2f}"
            for ratio, _, _ in (*measured.speed.values(), *([measured.speedup] if measured.speedup else []))
        ],
    ]


def _show_pruned(result: CompressionResult) -> None:
    """Say what pruning left of the model, what a cut vocabulary does to the eval rows, and what was trained."""
    for parent in result.parents:
        if parent.trained is not None:
            score = f"{result.source.task.metric} {100 * parent.trained.score.value:.2f} in torch"
            names = ", ".join(plan.candidate(width=parent.width) for plan in parent.plans)
            print(f"{names}: as trained for INT8 at step {parent.trained.step}, {score}.")
            continue
        pruned, cut, shot = parent.pruned, parent.vocabulary, parent.shot
        if shot is not None:
            done = parent.distilled
            trained = f"; distilled at a rate of {done.rate:g}, as it was at step {done.step}" if done else ""
            print(f"torch/{parent.name}: {shot}{trained}.")
        elif pruned is not None:
            shape = pruned.shape
            left = f"{len(shape.layers)} layers with {_range(shape.heads)} heads and {_range(shape.ffn)} neurons each"
            print(f"torch/{parent.name}: {left}, as they were at step {pruned.step}.")
        if cut is not None:
            said = f"torch/{parent.name}: {cut.tokens_after} of {cut.tokens_before} tokens stay"
            if cut.same_rows is not None and cut.unknown_before is not None and cut.unknown_after is not None:
                unknown = f"{100 * cut.unknown_before:.2f} to {100 * cut.unknown_after:.2f} %"
                said += f"; {100 * cut.same_rows:.1f} % of the rows that score keep theirs"
                said += f", and unknown ones go from {unknown}"
            print(f"{said}.")


def _range(numbers: Sequence[int]) -> str:
    return f"{min(numbers)}" if min(numbers) == max(numbers) else f"{min(numbers)} to {max(numbers)}"


def _show_choice(result: CompressionResult) -> None:
    best, choice = result.best, result.choice
    print(f"Best: {best.name}, on {best.engine}.")
    print(fill(choice.rule, WIDTH, initial_indent="  ", subsequent_indent="  "))
    width = max(map(len, choice.reasons), default=0)
    for name, reason in choice.reasons.items():
        print(f"  not {name:<{width}}  {reason}")


def _show_gain(result: CompressionResult) -> None:
    """Say plainly where INT8 gains nothing, and what memory it takes."""
    best, fp32 = result.best, result.fp32
    slower = {batch: ratio for batch, (ratio, _, _) in best.speed.items() if ratio < 1}
    if slower:
        where = " and ".join(f"{ratio:.2f} × at batch {batch}" for batch, ratio in slower.items())
        print(f"Slower than FP32 on this CPU (class {cpu().cpu_class}): {where}. What it saves here is size.")
    if best.memory_mb is not None and fp32.memory_mb is not None:
        print(
            f"Memory of the process after loading and a first batch: {best.memory_mb:.0f} MB on {best.engine}, "
            f"FP32 {fp32.memory_mb:.0f} MB on onnxruntime."
        )


def _show_layers(result: CompressionResult) -> None:
    """Say what stayed float, by reason, and which layers harm, if that was asked for."""
    quant_map = result.best.candidate.quant_map
    by_reason: dict[str, int] = {}
    for reason in quant_map.left_float.values():
        by_reason[reason] = by_reason.get(reason, 0) + 1
    left = [f"{count} ({REASONS[reason]})" for reason, count in by_reason.items()]
    products = f", {len(quant_map.products)} products of attention" if quant_map.products else ""
    done = f"{len(quant_map.layers)} layers{products} and {len(quant_map.tables)} tables of the best are INT8"
    print(f"{done}; float: {', '.join(left) or 'none'}.")
    if result.sensitivity:
        print("Harm of each layer alone in INT8 (mean |Δlogit|), the largest first:")
        for name, harm in list(result.sensitivity.items())[:10]:
            print(f"  {harm:.4f}  {name}")


def _show_test(test: Tested) -> None:
    drop = test.comparison.drop
    shown = "" if drop is None else f", drop {points(drop.drop)} ({interval((drop.low, drop.high))})"
    print(
        f"{test.best.rows} test rows, which chose nothing: FP32 {_points(test.fp32)}, best {_points(test.best)}{shown}."
    )


def _show_evaluation(measured: Measured, result: CompressionResult) -> None:
    """The table of the dynamic-quantization tutorials: size, score and seconds before and after."""
    fp32 = result.fp32
    rows = [["size, MB", _megabytes(fp32.size), _megabytes(measured.size)]]
    if fp32.score is not None:
        rows.append([f"{result.source.task.metric}, points", _points(fp32.score), _points(measured.score)])
    for threads, (before, after) in measured.evaluation.items():
        rows.append([f"evaluation with {threads_text(int(threads))}, s", _seconds(before), _seconds(after)])
    console.table(f"{measured.name}, before and after", ["", "FP32", "INT8"], rows)


def _show_ladder(run: FinishedRun) -> None:
    """What a search tried, in its order."""
    table = ladder(run)
    if table is None:
        return
    shown = table.shown()
    tried = [line.cells[0] if isinstance(line.cells[0], str) else line.cells[0][0] for line in shown.lines]
    rest = [list(map(plain, line.cells[1:])) for line in shown.lines]
    left = [" (not tried: no time left)" if line.mark == "left" else "" for line in shown.lines]
    rows = [[title + more, *cells] for title, more, cells in zip(tried, left, rest, strict=True)]
    console.table(fill(ladder_summary(run), WIDTH), [column.name for column in shown.columns], rows)


def _points(scored: Any) -> str:
    return "not scored" if scored is None else points(scored.value)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f}" if size >= 1e6 else f"{size / 1e6:.2f}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds >= 1 else f"{seconds:.3f}"
