"""Pruned to a speed-up without training: what is lost at 2, 3 and 4 × in FP32 and at 6 and 10 × with INT8.

    python benchmarks/speed_to_order.py MODELS DATA [NAME …] [--work DIR] [--out benchmarks/results/speed_to_order.md]

A third of the dev rows by seed chooses, the rest reports and chooses nothing. A speed-up is that of the artifact, in
one alternating run with the fastest FP32 engine: batch 16, one thread, 128 tokens (CMRC 256). Beside it in FP32:
uniform widths that are as fast by the same latency table, by importance alone and repaired, and Fisher scores without
repair.
--distilled 6 10: with INT8, trained after pruning for --minutes each; beside it the unpruned model trained on.
--work keeps runs; --without_others leaves out what stands beside. For other classes of CPU: --int8 3.6 6.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from subjects import SEED, Log, Subject, machine, work_folder

import tersely
from tersely import data, engines, runtime
from tersely.errors import UserError
from tersely.measure.score import Score, compare, score
from tersely.models.carve import carve, shape_for
from tersely.prune import PruneSettings
from tersely.prune.importance import ordered_model, reorder
from tersely.prune.latency import LatencyTable, read_table
from tersely.prune.one_shot import OneShotPruner, shape_within
from tersely.prune.repair import repair
from tersely.runtime import Predictor
from tersely.tasks import Columns

NAMES = ("mrpc", "tnews", "msra_ner", "cmrc2018")
FLOAT, INT8, DISTILLED = "prune", "prune+ptq+embeddings", "prune+dynabert+ptq+embeddings"
LABELS = {"msra_ner": 1.0}
"""Where labels teach beside the model: it has seen two fifths of its training rows."""
BESIDE = 6
"""Minutes that a run takes for each target beside training."""
RESAMPLES = 2000


def length_of(name: str) -> int:
    """Tokens at which speed-ups of a model are measured."""
    return 256 if name == "cmrc2018" else 128


def split(subject: Subject, rows: int | None) -> tuple[data.rows.Rows, data.rows.Rows]:
    """Dev rows that choose, a third, and those that report."""
    dev = data.read(subject.dev)
    order = [int(i) for i in np.random.default_rng(SEED).permutation(len(dev))[:rows]]
    third = len(order) // 3
    return dev.select(order[:third]), dev.select(order[third:])


def run(
    subject: Subject, choose: data.rows.Rows, out: Path, strategy: str, targets: list[float], minutes: float | None
) -> dict[str, Any]:
    """What `tersely.compress` writes, with its minutes; a run that is there already is used."""
    if not (out / "result.json").is_file():
        begun = time.perf_counter()
        tersely.compress(
            subject.model, output_dir=out, train_file=subject.train, eval_file=choose, strategy=strategy,
            target_speedup=targets, target_length=length_of(subject.name), max_minutes=minutes, seed=SEED,
            progress=True, label_loss=LABELS.get(subject.name) if strategy == DISTILLED else None,
            **subject.settings,
        )  # fmt: skip
        (out / "minutes").write_text(f"{(time.perf_counter() - begun) / 60:.1f}")
    found: dict[str, Any] = json.loads((out / "result.json").read_text(encoding="utf-8"))
    return found | {"minutes": (out / "minutes").read_text()}


def of_target(result: dict[str, Any], target: float) -> dict[str, Any]:
    """The candidate that its own rows would choose: the best score, then the most faithful."""
    names = {model["name"] for model in result["pruned"] if model["shot"]["target"] == target}
    made = [candidate for candidate in result["candidates"] if candidate["model"] in names]
    return max(
        made, key=lambda candidate: (candidate["name"] == result["best"], candidate["score"], candidate["same_answer"])
    )


@dataclass
class Drops:
    """Statistics of FP32 and of what was made of it, model by model, for the mean over models."""

    pairs: dict[str, list[tuple[Any, Any, Any]]] = field(default_factory=dict)

    def add(self, title: str, predictor: Predictor, before: Score, after: Score) -> None:
        """Keep both [rows, k], and how a score comes of their sums."""
        value = predictor.task.metrics[predictor.task.metric].value
        self.pairs.setdefault(title, []).append((value, before.statistics, after.statistics))

    def mean(self, title: str) -> tuple[float, float, float, int]:
        """The mean of the drops in points with equal weight, its paired 95 % interval, and the number of models."""
        generator, drops, total = np.random.default_rng(0), np.zeros(RESAMPLES), 0.0
        for value, before, after in self.pairs[title]:
            rows = len(before)
            counts = generator.multinomial(rows, np.full(rows, 1 / rows), RESAMPLES).astype(float)
            drops += np.asarray(value(counts @ before) - value(counts @ after))
            total += float(value(before.sum(0)) - value(after.sum(0)))
        count = len(self.pairs[title])
        low, high = np.percentile(100 * drops / count, [2.5, 97.5])
        return 100 * total / count, float(low), float(high), count


class Report:
    """One line for each model that is scored on the rows that report."""

    def __init__(self, log: Log, name: str, exact: Predictor, rows: list[Any], drops: Drops) -> None:
        self.log, self.name, self.exact, self.rows, self.drops = log, name, exact, rows, drops
        self.before = score(exact, rows)
        log.row(name, "FP32", "1", "1.00", f"{100 * self.before.value:.2f}", "", "", "", "", "")

    def line(self, how: str, target: float, seen: str, predictor: Predictor, size: str = "", minutes: str = "") -> None:
        after = score(predictor, self.rows)
        found = compare(self.exact.task, self.before, after)
        self.drops.add(f"{how} at {target:g}", self.exact, self.before, after)
        drop = found.drop
        shown = "" if drop is None else " ".join(
            [f"{100 * drop.drop:.2f}", f"({100 * drop.low:.2f} to {100 * drop.high:.2f})"]
        )  # fmt: skip
        moved = "" if found.mean_abs_logit_change is None else f"{found.mean_abs_logit_change:.3f}"
        same = f"{100 * found.same_answer:.1f} %"
        self.log.row(self.name, how, f"{target:g}", seen, f"{100 * after.value:.2f}", shown, same, moved, size, minutes)


def show(log: Log, subject: Subject, work: Path, args: argparse.Namespace, drops: Drops) -> list[str]:
    """All lines of a model; gives how far predictions of the tables were off."""
    choose, report = split(subject, args.rows)
    exact = runtime.load(subject.export(work / "fp32").folder, "onnxruntime", 1)
    lines = Report(log, subject.name, exact, exact.task.read(report, Columns(), labelled=True), drops)
    off = []
    for strategy, targets in ((FLOAT, args.float), (INT8, args.int8), (DISTILLED, args.distilled)):
        if not targets:
            continue
        out, allowed = work / strategy, len(targets) * (args.minutes + BESIDE) if strategy == DISTILLED else None
        result = run(subject, choose, out, strategy, targets, allowed)
        minutes = f"{sum(rung['minutes'] for rung in result['rungs']):.1f} of {result['minutes']}"
        for target in targets:
            candidate = of_target(result, target)
            size = f"{candidate['size'] / 1e6:.1f}"
            made = runtime.load(out / candidate["path"], threads=1)
            lines.line(strategy, target, f"{candidate['speedup']['ratio']:.2f}", made, size, minutes)
        off += [f"{model['shot']['expected']:.3g} / {model['shot']['seen']:.3g}" for model in result["pruned"]]
        if strategy == DISTILLED and not args.without_others:
            _control(subject, lines, choose, work, result)
    if args.float and not args.without_others:
        _others(subject, lines, read_table(work / FLOAT / "result.json", "fp32"), args.float)
    return off


def _control(subject: Subject, lines: Report, choose: data.rows.Rows, work: Path, result: dict[str, Any]) -> None:
    """The unpruned model in FP32, trained on with the rows, the rate and the steps of the longest training."""
    longest = max((model["distilled"] for model in result["pruned"]), key=lambda distilled: distilled["steps"])
    out = work / "control"
    if not (out / "config.json").is_file():
        tersely.finetune(
            subject.model, output_dir=out, train_file=subject.train, eval_file=choose, max_steps=longest["steps"],
            save_steps=max(1, longest["steps"] // 10), learning_rate=longest["rate"], seed=SEED, progress=True,
            **subject.settings,
        )  # fmt: skip
    trained = runtime.load(replace(subject, model=out).export(work / "control-fp32").folder, "onnxruntime", 1)
    lines.line(f"FP32, trained on for {longest['steps']} steps", 1, "1.00", trained)


def _others(subject: Subject, lines: Report, table: LatencyTable, targets: list[float]) -> None:
    """What stands beside: as fast by the table, scored in torch."""
    task_folder = tersely.models.folder.open_folder(subject.model, subject.task_options())
    train = task_folder.task.read(data.read(subject.train), Columns(), labelled=True)
    drawn = [train[int(i)] for i in np.random.default_rng(SEED).permutation(len(train))[:8192]]
    first_only = bool(table.about["first_position"])
    pruner = OneShotPruner(task_folder, drawn, first_only=first_only, seed=SEED)
    full, family = pruner.places.full, pruner.family
    settings = PruneSettings(width_mult_list=(Fraction(1, 2),))
    ordered = ordered_model(pruner.model, family, task_folder, drawn, settings, seed=SEED)
    by_gradients = reorder(pruner.model, pruner.scores[0].importance, family)

    def predictor(model: Any) -> Predictor:
        return Predictor(task_folder.task, task_folder.encoder, engines.load("torch", model))

    for target in targets:
        shape = max(
            (shape_for(full, Fraction(n, 48)) for n in range(4, 49)),
            key=lambda shape: (table.speedup(shape, full) >= target, -table.speedup(shape, full)),
        )
        seen = f"{table.speedup(shape, full):.2f} by the table"
        uniform = carve(ordered, family, shape).eval()
        lines.line("uniform widths", target, seen, predictor(uniform))
        repair(pruner.model, uniform, family, pruner.sample, first_only=first_only)
        lines.line("uniform widths, repaired", target, seen, predictor(uniform))
        try:
            shape = shape_within(pruner.places, pruner.scores[0], table, table.fp32 / target)
        except UserError:
            continue
        seen = f"{table.speedup(shape, full):.2f} by the table"
        lines.line("Fisher, not repaired", target, seen, predictor(carve(by_gradients, family, shape).eval()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("names", nargs="*", default=list(NAMES))
    parser.add_argument("--float", nargs="*", type=float, default=[2.0, 3.0, 4.0], help="speed-ups in FP32 (2 3 4)")
    parser.add_argument("--int8", nargs="*", type=float, default=[6.0, 10.0], help="speed-ups with INT8 (6 10)")
    parser.add_argument("--distilled", nargs="*", type=float, default=[], help="the same, trained after pruning (none)")
    parser.add_argument("--minutes", type=float, default=30.0, help="of training for each of these (30)")
    parser.add_argument("--rows", type=int, help="so many of the dev rows (all)")
    parser.add_argument("--without_others", action="store_true", help="only what tersely makes")
    parser.add_argument("--work", type=Path, help="keep runs here, and use those that are")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    log, drops, off = Log(args.out), Drops(), []
    log(f"python benchmarks/speed_to_order.py MODELS DATA; {machine()}; batch 16, one thread, 128 tokens (CMRC 256)")
    log()
    log.head(
        "model",
        "how",
        "asked ×",
        "measured ×",
        "score",
        "drop (95 %)",
        "same answer",
        "mean abs. Δlogit",
        "MB",
        "minutes",
    )
    with work_folder(args.work) as scratch:
        for name in args.names:
            subject = Subject.find(name, args.models, args.data)
            off += show(log, subject, scratch / name, args, drops)
    log()
    log.head("mean over models", "drop (95 %)", "models")
    for title in drops.pairs:
        mean, low, high, count = drops.mean(title)
        log.row(title, f"{mean:.2f} ({low:.2f} to {high:.2f})", str(count))
    log()
    log(f"Speed-ups by the latency table / of the graph: {', '.join(off)}.")


if __name__ == "__main__":
    main()
