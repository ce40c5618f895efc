"""Four fine-tuned models at width 3/4, in FP32 and INT8: drop, fidelity, speed, size; beside each the control.

    python benchmarks/pruned_models.py MODELS DATA [NAME …] [--work DIR] [--out benchmarks/results/pruned_models.md]

The control is the unpruned model trained on with the same rows, steps and losses. Rows drawn from the training rows,
which train nothing, choose the step of a width; dev rows report, and choose nothing. Speed is one thread, batch 16,
length 128, in one alternating run. --work keeps trainings. To try it: --steps 4 --rows 50.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import torch
from speeds import FP32, runs
from subjects import LABEL_LOSS, SEED, Log, Split, Subject, machine, work_folder

from tersely import engines, runtime
from tersely.measure.benchmark import Contestant, alternate, full_batch
from tersely.measure.score import Comparison, Score, compare, score
from tersely.models.folder import ModelFolder, open_folder
from tersely.prune import PruneSettings, TrainingRun, train_widths
from tersely.runtime import Predictor

SETTINGS = PruneSettings(width_mult_list="3/4", distill_hidden=1.0)  # type: ignore[arg-type]
STEPS = {"mrpc": (230, 16), "tnews": (200, 32), "msra_ner": (400, 16), "cmrc2018": (200, 8)}
"""Steps and rows a step: few, as untrained slices of these models answer almost like the whole already."""
FEWER = {"cmrc2018": 100}
"""Rows that choose, and that tell importance, where a row is several long windows (500 and 512 elsewhere)."""
BATCH, LENGTH = 16, 128
PRUNED, INT8, CONTROL = "width 3/4", "width 3/4, INT8", "FP32, trained on"


def training(name: str, steps: int | None) -> dict[str, Any]:
    own, size = STEPS[name]
    half = (steps or own) // 2
    return {
        "max_steps": 2 * half,
        "save_steps": half,
        "per_device_train_batch_size": size,
        "learning_rate": 1e-4,
        "warmup_steps": half // 8,
    }


def trained(
    folder: ModelFolder, split: Split, work: Path, settings: PruneSettings, options: Mapping[str, Any], log: Log
) -> Path:
    """The folder of the one width that is asked for, trained or found."""
    start, took = time.perf_counter(), work.with_suffix(".minutes")
    (made,) = train_widths(TrainingRun(folder, split.train, split.choose, work, options, SEED), settings)
    if not took.exists():  # else it was trained before
        took.write_text(f"{(time.perf_counter() - start) / 60:.1f}")
    log(f"  {made.name}: step {made.step} of {options['max_steps']}, {took.read_text()} minutes")
    return made.folder


def open_all(subject: Subject, scratch: Path, rows: int | None, steps: int | None, log: Log) -> tuple[Any, Any]:
    """Predictors by what they are, and the dev rows."""
    folder = open_folder(subject.model, subject.task_options())
    split, options = Split.of(subject, folder.task, rows), training(subject.name, steps)
    settings = replace(SETTINGS, label_loss=LABEL_LOSS.get(subject.name, 0.0))
    if subject.name in FEWER:
        few = FEWER[subject.name]
        split, settings = replace(split, choose=split.choose[:few]), replace(settings, importance_rows=few)
    losses = {"label_loss": settings.label_loss}
    log(f"{subject.name}: {len(split.train)} training rows, {len(split.choose)} choose; {losses | options}")
    pruned = trained(folder, split, scratch / "width", settings, options, log)
    unpruned = replace(settings, width_mult_list=(1,))  # type: ignore[arg-type]
    control = trained(folder, split, scratch / "control", unpruned, options, log)
    found = {}
    for what, model in ((FP32, subject.model), (PRUNED, pruned), (CONTROL, control)):
        place = scratch / f"fp32-{model.name}-{what == CONTROL}"
        replace(subject, model=model).export(place)
        found[what] = runtime.load(place, "onnxruntime")
    made = scratch / "ptq"
    # One calibrator, so that dev rows have nothing to choose.
    replace(subject, model=pruned).compress(made, "--strategy", "ptq", "--algo_list", "min_max")
    found[INT8] = runtime.load(made / "best")
    return found, split.report


def show_scores(
    log: Log, name: str, found: Mapping[str, Predictor], rows: Sequence[Any]
) -> dict[str, tuple[float, int]]:
    """Drops by what it is, with the number of rows."""
    scored: dict[str, Score] = {what: score(predictor, rows) for what, predictor in found.items()}
    drops = {}
    for what, after in scored.items():
        seen: Comparison = compare(found[what].task, scored[FP32], after)
        metrics = ", ".join(f"{metric} {100 * value:.2f}" for metric, value in after.metrics.items())
        if what == FP32 or seen.drop is None:
            log.row(name, what, metrics, "", "", "", str(len(rows)))
            continue
        drop, low, high = (100 * value for value in (seen.drop.drop, seen.drop.low, seen.drop.high))
        change = f"{seen.mean_abs_logit_change:.3f}" if seen.mean_abs_logit_change is not None else ""
        same = f"{100 * seen.same_answer:.2f} %"
        log.row(name, what, metrics, f"{drop:.2f} ({low:.2f} to {high:.2f})", same, change, str(len(rows)))
        drops[what] = drop, len(rows)
    return drops


def show_speed(log: Log, name: str, scratch: Path, seconds: float) -> dict[tuple[str, str], float]:
    """× the unpruned FP32 model on the same engine, which is given back, and on the fastest."""
    installed = [engine for engine in engines.installed() if engine != "torch"]
    places = {FP32: next(scratch.glob(f"fp32-{name}-*")), PRUNED: next(scratch.glob("fp32-width_mult_0.75-*"))}
    runners = [(what, runtime.load(place, engine, 1)) for what, place in places.items() for engine in installed]
    runners += [(INT8, runtime.load(scratch / "ptq" / "best", threads=1))]
    batch = full_batch(BATCH, LENGTH, runners[0][1].encoder.vocab_size)
    contestants = [Contestant(what, runner.engine.name, runs(runner, batch)) for what, runner in runners]
    timings = alternate(contestants, contestants[0].label, seconds=seconds)
    unpruned = {timing.engine: timing.ratio for timing in timings if timing.model == FP32}
    found = {}
    for timing in timings:
        own, fastest = timing.ratio / unpruned[timing.engine], timing.ratio / max(unpruned.values())
        log.row(name, timing.model, timing.engine, f"{own:.2f}", f"{fastest:.2f}", f"{1000 * timing.seconds:.1f}")
        found[timing.model, timing.engine] = own
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("names", nargs="*", default=list(STEPS))
    parser.add_argument("--steps", type=int, help="so many for every model (those of STEPS)")
    parser.add_argument("--rows", type=int, help="dev rows to report on, the first so many (all)")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each contestant (5)")
    parser.add_argument("--only", nargs="+", choices=["scores", "speed"], default=["scores", "speed"])
    parser.add_argument("--work", type=Path, help="keep trainings here, and use those that are")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    log = Log(args.out)
    log(f"python benchmarks/pruned_models.py MODELS DATA; {machine()}, {torch.get_num_threads()} threads train")
    log(f"{SETTINGS.as_json()}")
    with work_folder(args.work) as scratch:
        opened = {}
        for name in args.names:
            subject = Subject.find(name, args.models, args.data)
            opened[name] = open_all(subject, scratch / name, args.rows, args.steps, log)
        if "scores" in args.only:
            show_all_scores(log, opened)
        if "speed" in args.only:
            show_all_speeds(log, args.names, scratch, args.seconds)


def show_all_scores(log: Log, opened: Mapping[str, tuple[Any, Any]]) -> None:
    drops: dict[str, list[tuple[float, int]]] = {}
    log()
    log.head("model", "what", "score", "drop (95 %)", "same answer", "mean abs. Δlogit", "dev rows")
    for name, (found, rows) in opened.items():
        for what, drop in show_scores(log, name, found, rows).items():
            drops.setdefault(what, []).append(drop)
    log()
    for what, every in drops.items():
        rows = sum(count for _, count in every)
        pooled = sum(drop * count for drop, count in every) / rows
        log(f"{what}: drop pooled over {rows} dev rows of {len(every)} models: {pooled:.2f} points")


def show_all_speeds(log: Log, names: Sequence[str], scratch: Path, seconds: float) -> None:
    ratios: dict[tuple[str, str], list[float]] = {}
    log()
    log(f"One thread, batch {BATCH}, length {LENGTH}, {machine()}:")
    log.head("model", "what", "engine", "× FP32 on that engine", "× the fastest FP32", "ms a batch")
    for name in names:
        for which, ratio in show_speed(log, name, scratch / name, seconds).items():
            ratios.setdefault(which, []).append(ratio)
    log()
    for (what, engine), every in ratios.items():
        if what != FP32 and len(every) == len(names):
            log(f"{what} on {engine}: {geometric_mean(every):.2f} × FP32 there, geometric mean of {len(every)} models")


if __name__ == "__main__":
    main()
