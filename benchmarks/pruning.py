"""Widths of one model, trained in one run: drop, fidelity, speed and size, and what each part of the method gives.

    python benchmarks/pruning.py MODELS DATA [--name mrpc] [--widths 3/4 2/3 1/2 1/4] [--steps 120] [--work DIR]
                                 [--out benchmarks/results/pruning.md]

Beside the trained widths: the same widths pruned without training, trained without reordering, with neither, the
unpruned model trained on with the same rows, steps and losses, and, if asked for, each width alone. Rows drawn from the
training rows, which train nothing, choose the step of a width; dev rows report. Speed is that of the exported FP32
graphs, one thread, batch 16, length 128, in alternating runs; so is the cost of a training step against plain
fine-tuning. To try it: --steps 4 --seconds 0.1 --eval_rows 50.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from subjects import SEED, Log, Split, Subject, machine, work_folder

from tersely import engines
from tersely.engines.torch import input_names
from tersely.graphs.export import export_onnx
from tersely.measure.benchmark import Contestant, alternate, full_batch
from tersely.measure.score import Score, compare, score
from tersely.models.carve import shape_of
from tersely.models.families import find
from tersely.models.folder import ModelFolder, open_folder
from tersely.models.torch_folder import load_module
from tersely.prune import Elastic, Pruned, PruneSettings, TrainingRun, prune_only, save_carved, train_widths
from tersely.runtime import Predictor
from tersely.training.losses import Counts, hidden_loss, kind_of, label_loss, logits_loss
from tersely.training.teacher import record_states

BATCH, LENGTH = 16, 128
FULL = "unpruned"


@dataclass(frozen=True)
class Rows:
    """A model, and its rows by what they do."""

    folder: ModelFolder
    split: Split

    @property
    def dev(self) -> list[Any]:
        return self.split.report

    def score(self, model: Any) -> tuple[Predictor, Score]:
        predictor = Predictor(self.folder.task, self.folder.encoder, engines.load("torch", model))
        return predictor, score(predictor, self.dev)


def train(rows: Rows, work: Path, settings: PruneSettings, training: Mapping[str, Any]) -> tuple[Pruned, ...]:
    return train_widths(TrainingRun(rows.folder, rows.split.train, rows.split.choose, work, training, SEED), settings)


VARIANTS = ("trained", "pruned, not trained", "trained, not reordered", "neither", "unpruned, trained on", "each alone")
Found = list[tuple[str, Any, str]]
"""Width, model and step."""


def make_variant(what: str, rows: Rows, settings: PruneSettings, training: Mapping[str, Any], scratch: Path) -> Found:
    """Every width of one variant."""
    plain = replace(settings, reorder=False)
    if what in ("pruned, not trained", "neither"):
        chosen = plain if what == "neither" else settings
        return [(n, model, "") for n, model in prune_only(rows.folder, rows.split.train, chosen, seed=SEED).items()]
    runs = {
        "trained": [settings],
        "trained, not reordered": [plain],
        "unpruned, trained on": [replace(settings, width_mult_list=(1,))],  # type: ignore[arg-type]
        "each alone": [replace(settings, width_mult_list=(width,)) for width in settings.width_mult_list],
    }[what]
    places = [scratch / f"{what.replace(',', '').replace(' ', '-')}-{number}" for number in range(len(runs))]
    made = [width for run, place in zip(runs, places, strict=True) for width in train(rows, place, run, training)]
    return [(FULL if what == "unpruned, trained on" else width.name, width.folder, str(width.step)) for width in made]


def show_scores(
    log: Log,
    rows: Rows,
    settings: PruneSettings,
    training: Mapping[str, Any],
    scratch: Path,
    names: Sequence[str],
) -> dict[str, Path]:
    """Drop and fidelity of every variant; gives the folders of the trained widths."""
    variants = {what: make_variant(what, rows, settings, training, scratch) for what in names}
    _, reference = rows.score(rows.folder.path)
    log(f"The model itself: {reference.metric} {100 * reference.value:.2f} on {reference.rows} dev rows.")
    log.head("what", "width", "step", reference.metric, "drop (95 %)", "same answers %", "mean abs Δlogit")
    for what, models in variants.items():
        for name, model, step in models:
            predictor, scored = rows.score(model)
            found = compare(predictor.task, reference, scored)
            drop = found.drop
            shown = f"{100 * drop.drop:.2f} ({100 * drop.low:.2f} to {100 * drop.high:.2f})" if drop else ""
            change = "" if found.mean_abs_logit_change is None else f"{found.mean_abs_logit_change:.3f}"
            log.row(what, name, step, f"{100 * scored.value:.2f}", shown, f"{100 * found.same_answer:.1f}", change)
    return {name: folder for name, folder, _ in variants.get("trained", [])}


def show_speed(log: Log, rows: Rows, folders: Mapping[str, Path], scratch: Path, seconds: float) -> None:
    """Exported FP32 graphs against the unpruned one's, each engine by itself."""
    graphs = {}
    for name, folder in {FULL: rows.folder.path, **folders}.items():
        graphs[name] = scratch / "graphs" / f"{name}.onnx"
        if not graphs[name].is_file():
            export_onnx(folder, graphs[name])
    batch = full_batch(BATCH, LENGTH, int(rows.folder.config["vocab_size"]))
    log.head("engine", "width", "seconds a batch", "× unpruned (10th to 90th percentile)", "graph MB", "% of unpruned")
    for engine in [name for name in engines.installed() if name != "torch"]:
        runners = {name: engines.load(engine, path, threads=1) for name, path in graphs.items()}
        works = [Contestant(name, engine, runs(runner, batch)) for name, runner in runners.items()]
        for timing in alternate(works, works[0].label, seconds=seconds):
            size, full_size = graphs[timing.model].stat().st_size, graphs[FULL].stat().st_size
            ratio = f"{timing.ratio:.2f} ({timing.spread[0]:.2f} to {timing.spread[1]:.2f})"
            log.row(
                engine,
                timing.model,
                f"{timing.seconds:.3f}",
                ratio,
                f"{size / 1e6:.1f}",
                f"{100 * size / full_size:.0f}",
            )


def runs(engine: Any, batch: Any) -> Callable[[], object]:
    return lambda: engine.run(batch)


def show_cost(log: Log, rows: Rows, settings: PruneSettings, seconds: float) -> None:
    """A step with the first width alone against a step of fine-tuning: forward, backward, clipping, AdamW."""
    model = load_module(rows.folder.path)
    family = find(model)
    first = replace(settings, width_mult_list=settings.width_mult_list[:1])
    (target, *_), _ = first.targets(shape_of(model, family))
    batch = step_batch(model, rows)
    names = input_names(model)
    feed = {name: batch[name] for name in names}
    teacher, plain = model, copy.deepcopy(model).train()
    elastic = Elastic(copy.deepcopy(model), {target.name: target.shape}, family).train()
    counts, kind = Counts.of([batch]), kind_of(rows.folder.task)

    def distil() -> torch.Tensor:
        from tersely.engines.torch import as_tuple, output_names

        outputs = output_names(model)
        with torch.no_grad(), record_states(teacher, family) as states:
            taught = as_tuple(teacher(**feed), outputs)
        output, own = elastic(target.name, states=True, **feed)
        hidden = hidden_loss(own, states, target.shape.layers, feed["attention_mask"], counts.tokens)
        soft = logits_loss(as_tuple(output, outputs), taught, kind, feed["attention_mask"], counts)
        loss = settings.distill_hidden * hidden + settings.distill_logits * soft
        return loss + settings.label_loss * label_loss(as_tuple(output, outputs), batch, kind, counts)

    works = [
        Contestant("plain fine-tuning", "torch", step(plain, lambda: plain(**batch).loss)),
        Contestant(target.name, "torch", step(elastic, distil)),
    ]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        base, ours = alternate(works, works[0].label, seconds=seconds)
    finally:
        torch.set_num_threads(threads)
    low, high = 1 / ours.spread[1], 1 / ours.spread[0]
    log.head("a training step", "seconds", "× plain fine-tuning (10th to 90th percentile)")
    log.row(base.model, f"{base.seconds:.2f}", "1.00")
    log.row(ours.model, f"{ours.seconds:.2f}", f"{1 / ours.ratio:.2f} ({low:.2f} to {high:.2f})")


def step_batch(model: Any, rows: Rows) -> dict[str, torch.Tensor]:
    """A batch without padding, and labels drawn for it."""
    arrays = full_batch(BATCH, LENGTH, int(rows.folder.config["vocab_size"]))
    batch = {name: torch.from_numpy(array) for name, array in arrays.items() if name in input_names(model)}
    draw = torch.Generator().manual_seed(SEED)
    kind = kind_of(rows.folder.task)
    if kind == "question_answering":
        return {
            **batch,
            **{f"{end}_positions": torch.randint(0, LENGTH, (BATCH,), generator=draw) for end in ("start", "end")},
        }
    shape = (BATCH, LENGTH) if kind == "token_classification" else (BATCH,)
    return {**batch, "labels": torch.randint(0, len(rows.folder.task.labels), shape, generator=draw)}


def step(model: Any, loss: Callable[[], torch.Tensor]) -> Callable[[], object]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)

    def work() -> None:
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return work


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--name", default="mrpc")
    parser.add_argument("--widths", nargs="+", default=["3/4", "2/3", "1/2", "1/4"])
    parser.add_argument("--depths", nargs="+", default=["1"])
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--save_steps", type=int, default=60)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--distill_hidden", type=float, default=1.0)
    parser.add_argument("--distill_logits", type=float, default=1.0)
    parser.add_argument("--label_loss", type=float, default=0.0)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS[:-1])
    parser.add_argument("--eval_rows", type=int, help="the first so many (all)")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each contestant (10)")
    parser.add_argument("--only", nargs="+", choices=["scores", "speed", "cost"], default=["scores", "speed", "cost"])
    parser.add_argument("--work", type=Path, help="keep trainings here, and use those that are")
    parser.add_argument("--out", type=Path)
    return parser.parse_args(words)


def main() -> None:
    args = parse()
    log = Log(args.out)
    subject = Subject.find(args.name, args.models, args.data)
    folder = open_folder(subject.model, subject.task_options())
    rows = Rows(folder, Split.of(subject, folder.task, args.eval_rows))
    settings = PruneSettings(
        width_mult_list=args.widths,
        depth_mult_list=args.depths,
        distill_hidden=args.distill_hidden,
        distill_logits=args.distill_logits,
        label_loss=args.label_loss,
    )
    training = {
        "max_steps": args.steps,
        "save_steps": args.save_steps,
        "per_device_train_batch_size": args.batch_size,
        "learning_rate": args.learning_rate,
    }
    log(f"python benchmarks/pruning.py MODELS DATA; {subject.name}, {machine()}")
    log(f"{len(rows.split.train)} training rows; {training}; {settings.as_json()}")
    log(f"{len(rows.split.choose)} training rows, which train nothing, choose the step of each width; dev rows report.")
    with work_folder(args.work) as scratch:
        folders: dict[str, Path] = {}
        if "scores" in args.only:
            log()
            folders = show_scores(log, rows, settings, training, scratch, args.variants)
        if "speed" in args.only:
            log()
            log(f"FP32 graphs, one thread, batch {BATCH}, length {LENGTH}:")
            if not folders:  # weights make no difference to speed
                models = prune_only(rows.folder, rows.split.train, replace(settings, reorder=False), seed=SEED)
                places = {name: scratch / "untrained" / name for name in models}
                folders = {
                    n: save_carved(models[n], places[n], source=rows.folder.path, overwrite=True) for n in models
                }
            show_speed(log, rows, folders, scratch, args.seconds)
        if "cost" in args.only:
            log()
            log(f"One thread, batch {BATCH}, length {LENGTH}, no padding:")
            show_cost(log, rows, settings, args.seconds)


if __name__ == "__main__":
    main()
