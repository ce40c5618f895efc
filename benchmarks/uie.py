"""The extractor of `examples/uie/` on MSRA-NER: FP32, calibrated, trained for INT8, pruned; span F1, size, speed.

    python benchmarks/uie.py ENCODER DATA [--work DIR] [--out benchmarks/results/uie.md]

ENCODER is a Chinese encoder's folder, DATA holds msra_ner. The example's own scripts run: sentences of train.txt train,
others of it choose (calibrators, steps), those of dev.txt report and choose nothing. One thread. --work keeps what was
trained and compressed: a second run scores and times it again; --only speed times alone. To try it: --steps 4 --rows 60
--sentences 60.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from speeds import BATCHES, FP32, times_faster
from subjects import SEED, Log, machine, work_folder
from tokenizers import Tokenizer

from tersely import engines, load_model, runtime
from tersely.artifact import read
from tersely.graphs.export import export_onnx
from tersely.measure.intervals import paired
from tersely.runtime import Predictor
from tersely.runtime.choose import choose

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "uie"
sys.path.insert(0, str(EXAMPLE))
from data import read_rows  # noqa: E402
from evaluate import score_rows  # noqa: E402
from features import LABELS, encode  # noqa: E402
from model import UIE  # noqa: E402

PROMPTS = ("PER=人物", "LOC=地点", "ORG=组织机构")
LENGTH = 128
TRAIN = {"learning_rate": "2e-4", "warmup_ratio": "0.1", "weight_decay": "0.01", "per_device_train_batch_size": "8",
         "train_sampling_strategy": "group_by_length", "save_strategy": "no"}  # fmt: skip
STEPS = 600
COMMON = {"algo_list": "mse", "per_device_train_batch_size": "8", "per_device_eval_batch_size": "16"}
"""One calibrator, so that rows have little to choose."""
STRATEGIES: dict[str, tuple[str, int, dict[str, str]]] = {
    "PTQ": ("ptq", 0, {"algo_list": "mse", "per_device_eval_batch_size": "16"}),
    "QAT": ("qat", 24, {**COMMON, "learning_rate": "1e-5", "distill_hidden": "1"}),
    "width 3/4, PTQ": (
        "dynabert+ptq",
        240,
        {**COMMON, "learning_rate": "1e-4", "label_loss": "1", "importance_rows": "128"},
    ),
}
"""What each row of the table is: the strategy, its steps, its options."""


def script(name: str, *words: Any) -> None:
    """One of the example's scripts, as a user runs it."""
    command = [sys.executable, str(EXAMPLE / name), *map(str, words)]
    subprocess.run(command, check=True, env={**os.environ, "TRANSFORMERS_VERBOSITY": "error"})


def make(args: argparse.Namespace, work: Path) -> dict[str, Path]:
    """Folders by what they are; what is there already is used."""
    rows, model = work / "data", work / "finetuned"
    if not (rows / "test.txt").is_file():
        files = ["--ner_file", args.data / "msra_ner/train.txt", "--test_file", args.data / "msra_ner/dev.txt"]
        sizes = ["--train_sentences", args.sentences, "--dev_sentences", min(150, args.sentences)]
        script("data.py", *files, *sizes, "--prompts", *PROMPTS, "--save_dir", rows, "--seed", SEED)
    usual = ["--train_path", rows / "train.txt", "--dev_path", rows / "dev.txt", "--max_seq_length", LENGTH]
    usual += ["--label_names", *LABELS, "--report_to", "none", "--use_cpu", "--disable_tqdm", "true", "--seed", SEED]
    if not (model / "model.safetensors").is_file():
        limit = ["--max_steps", args.steps or STEPS]
        where = ["--model_name_or_path", args.encoder, "--output_dir", model, "--do_train"]
        script("finetune.py", *where, *usual, *limit, *flags(TRAIN))
    found = {FP32: model}
    for what in args.what:
        strategy, steps, options = STRATEGIES[what]
        place = found[what] = work / strategy
        if not (place / "result.json").is_file():
            where = ["--model_name_or_path", model, "--output_dir", place, "--do_compress", "--strategy", strategy]
            trained = args.steps or steps
            count = ["--max_steps", trained, "--save_steps", max(1, trained // 2)] if steps else []
            script("finetune.py", *where, *usual, *count, *flags(options))
    return found


def flags(options: Mapping[str, str]) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name}", value)]


def open_all(found: Mapping[str, Path], work: Path) -> dict[str, tuple[Predictor, float]]:
    """On one thread each, with the megabytes that its engine loads; FP32 on every engine that is installed."""
    opened: dict[str, tuple[Predictor, float]] = {}
    for what, place in found.items():
        if what != FP32:
            artifact = read(place / "best")
            chosen, _ = choose(artifact, threads=1)
            size = sum(artifact.path(file).stat().st_size for file in (chosen.path, *chosen.data))
            opened[what] = runtime.load(place / "best", threads=1), size / 1e6
    graph = work / "fp32.onnx"
    if not graph.is_file():
        export_onnx(load_model(found[FP32], UIE), graph, outputs=("output_0", "output_1"))
    first, _ = next(iter(opened.values()))
    installed = [name for name in engines.installed() if name != "torch"]
    exact = {name: replace(first, engine=engines.load(name, graph, threads=1)) for name in installed}
    return {**{f"{FP32} {name}": (each, graph.stat().st_size / 1e6) for name, each in exact.items()}, **opened}


def f1(sums: Any) -> Any:
    """Of sums of right, found and wanted answers."""
    return 2 * sums[..., 0] / np.maximum(sums[..., 1] + sums[..., 2], 1)


def scored(opened: Mapping[str, tuple[Predictor, float]], rows: Sequence[Any]) -> dict[str, tuple[str, str]]:
    """F1 and drop with its interval by what it is; rows are resampled, paired."""
    exact, scores = None, {}
    for what, (predictor, _) in opened.items():
        if what.startswith(FP32) and exact is not None:  # the same graph on another engine
            continue
        counts = score_rows(predictor, rows).astype(float)
        name = FP32 if exact is None else what
        exact = counts if exact is None else exact
        drop = paired(exact, counts, f1, seed=SEED)
        shown = "" if name == FP32 else f"{100 * drop.drop:.2f} ({100 * drop.low:.2f} to {100 * drop.high:.2f})"
        scores[name] = f"{100 * float(f1(counts.sum(axis=0))):.2f}", shown
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoder", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--what", nargs="+", choices=list(STRATEGIES), default=list(STRATEGIES), help="rows (all)")
    parser.add_argument("--sentences", type=int, default=2000, help="of train.txt, to train on (2000)")
    parser.add_argument("--steps", type=int, help="so many for every training (those of STRATEGIES)")
    parser.add_argument("--rows", type=int, help="rows to report on, the first so many (all)")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each contestant (5)")
    parser.add_argument("--only", nargs="+", choices=["scores", "speed"], default=["scores", "speed"])
    parser.add_argument("--work", type=Path, help="keep trainings here, and use those that are")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with work_folder(args.work) as work:
        found = make(args, work)
        opened = open_all(found, work)
        tokenizer = Tokenizer.from_file(str(found[FP32] / "tokenizer.json"))
        prompted = read_rows(str(work / "data" / "test.txt"))
        rows = encode(prompted[: args.rows], tokenizer, LENGTH)
        log = Log(args.out)
        log(f"python benchmarks/uie.py ENCODER DATA; {machine()}, one thread, length {LENGTH}")
        chosen = [(what, *STRATEGIES[what]) for what in args.what]
        trained = [f"{what}: {strategy}, {steps} steps, {options}" for what, strategy, steps, options in chosen]
        log(f"FP32: {STEPS} steps, {TRAIN}; " + "; ".join(trained))
        log()
        scores = scored(opened, rows) if "scores" in args.only else {}
        runners = {what: predictor for what, (predictor, _) in opened.items()}
        speeds = times_faster(runners, LENGTH, args.seconds) if "speed" in args.only else {}
        log.head("extractor", "engine", f"span F1, {len(rows)} rows of dev.txt", "drop (95 %)", "MB",
                 *(f"× fastest FP32, batch {batch}" for batch in BATCHES))  # fmt: skip
        for what, (predictor, size) in opened.items():
            score = scores.get(FP32 if what.startswith(FP32) else what, ("", ""))
            name = FP32 if what.startswith(FP32) else what
            log.row(name, predictor.engine.name, *score, f"{size:.1f}", *speeds.get(what, ["", ""]))


if __name__ == "__main__":
    main()
