"""Four fine-tuned models in INT8, calibrated and trained: drop, fidelity, what training adds; beside it the control.

    python benchmarks/qat.py MODELS DATA [NAME …] [--ablate NAME] [--work DIR] [--out benchmarks/results/qat.md]

PTQ: of three calibrators the one whose logits move least on rows drawn from the training rows, which train nothing.
Those rows choose the step of QAT too, which learns from the FP32 model's answers and hidden states. The control is the
FP32 model trained on with the same rows and steps, from labels and its own answers: these alone would leave it as it
is. Dev rows report, and choose nothing. All INT8 runs in ONNX Runtime's fused graph. `--ablate`: one model in coarser
INT8, with and without PACT, from the FP32 model and from labels. --work keeps trainings. To try it:
--steps 4 --rows 50.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from subjects import SEED, Log, Split, Subject, machine, plain_graph, work_folder

from tersely import engines, runtime
from tersely.deploy.export import GRAPH
from tersely.graphs.write_onnxruntime import write_onnxruntime
from tersely.graphs.write_qdq import write_qdq
from tersely.measure.score import Score, answer, compare, score
from tersely.models.folder import ModelFolder, open_folder
from tersely.models.torch_folder import load_module
from tersely.prune import PruneSettings, train_widths
from tersely.qat import Calibrated, FakeQuantized, QatSettings, Trained, TrainingRun, train_int8
from tersely.quant_map import QuantMap
from tersely.quantize.ptq import PtqSettings, ptq
from tersely.quantize.samples import Samples
from tersely.quantize.targets import find_targets
from tersely.runtime import Predictor

SETTINGS = QatSettings(activation_quantize_type="range_abs_max", distill_hidden=1.0, label_loss=0.0)
"""From the FP32 model alone: these models know their rows by heart, and what labels still say there is noise. Ranges
begin as calibration's, and only PACT narrows them."""
STEPS = {"mrpc": (60, 16), "tnews": (60, 32), "msra_ner": (60, 16), "cmrc2018": (60, 8)}
"""Steps and rows a step."""
FEWER = {"cmrc2018": 100}
"""Rows that choose, where a row is several long windows (500 elsewhere)."""
FP32, PTQ, QAT, CONTROL = "FP32", "PTQ", "QAT", "FP32, trained on"
OVER = "QAT over PTQ"
NUDGE, NUDGED = 1e-6, "itself, embeddings × (1 ± 1e-6)"
DISTILLED = "PACT, distillation"
COARSE = replace(SETTINGS, weight_quantize_type="abs_max", smooth="off")
"""One scale a tensor, no smoothing: with the defaults calibration leaves next to nothing to win back."""
LABELS = replace(COARSE, distill_hidden=0.0, distill_logits=0.0, label_loss=1.0)
VARIANTS = {
    DISTILLED: COARSE,
    "no PACT, distillation": replace(COARSE, use_pact=False),
    "PACT, labels": LABELS,
    "no PACT, labels": replace(LABELS, use_pact=False),
}


@dataclass(frozen=True)
class Case:
    """A model with its graph and rows, and a folder for what is made of it."""

    subject: Subject
    folder: ModelFolder
    exact: Predictor
    proto: Any
    samples: Samples
    split: Split
    options: Mapping[str, Any]
    scratch: Path

    @classmethod
    def of(cls, subject: Subject, scratch: Path, rows: int | None, steps: int | None, rate: float) -> Case:
        folder = open_folder(subject.model, subject.task_options())
        split = Split.of(subject, folder.task, rows)
        if subject.name in FEWER:
            split = replace(split, choose=split.choose[: FEWER[subject.name]])
        artifact = subject.export(scratch / "fp32")
        exact = runtime.load(artifact.folder, "onnxruntime")
        proto = plain_graph(artifact.path(GRAPH), first_position=True)
        return cls(
            subject, folder, exact, proto, subject.samples(exact), split, training(subject.name, steps, rate), scratch
        )

    def int8(self, proto: Any, quant_map: QuantMap, name: str, engine: str = "onnxruntime") -> Predictor:
        place = self.scratch / f"{name}-{engine}.onnx"
        fused = engine == "onnxruntime"
        onnx.save_model(
            write_onnxruntime(proto, quant_map) if fused else write_qdq(proto, quant_map, signed=False), place
        )
        return self.predictor(engines.load(engine, place, precision="int8"))

    def predictor(self, engine: Any) -> Predictor:
        return Predictor(self.folder.task, self.folder.encoder, engine)

    def exported(self, model: Path, name: str) -> Any:
        """The graph of a trained model, as the quantizers see it."""
        artifact = replace(self.subject, model=model).export(self.scratch / f"fp32-{name}")
        return plain_graph(artifact.path(GRAPH), first_position=True)


def training(name: str, steps: int | None, rate: float) -> dict[str, Any]:
    own, size = STEPS[name]
    third = max(1, (steps or own) // 3)
    return {
        "max_steps": 3 * third,
        "save_steps": third,
        "per_device_train_batch_size": size,
        "learning_rate": rate,
        "warmup_steps": third // 6,
    }


def calibrated(case: Case, log: Log, settings: QatSettings = SETTINGS) -> Predictor:
    """The calibrator whose logits move least on the rows that choose."""
    how = PtqSettings(weight_quantize_type=settings.weight_quantize_type, smooth=settings.smooth, seed=SEED)
    targets = find_targets(case.proto)
    before = answer(case.exact, case.split.choose)
    found = {}
    for (algo, _), quant_map in ptq(case.proto, targets, case.samples, how).items():
        candidate = case.int8(case.proto, quant_map, f"ptq-{algo}")
        seen = compare(candidate.task, before, answer(candidate, case.split.choose))
        found[algo] = (seen.mean_abs_logit_change or 0.0, candidate)
    best = min(found, key=lambda algo: found[algo][0])
    log(f"  PTQ: {best} of " + ", ".join(f"{algo} {moved:.4f}" for algo, (moved, _) in found.items()))
    return found[best][1]


def trained(case: Case, settings: QatSettings, name: str, log: Log) -> tuple[Trained, Any]:
    """What training for INT8 gives, made or found, and its graph."""
    start, work = time.perf_counter(), case.scratch / name
    took = work.with_suffix(".minutes")
    run = TrainingRun(case.folder, case.split.train, case.split.choose, work, case.options, SEED)
    done = train_int8(run, Calibrated(case.proto, case.samples), settings)
    if not took.exists():  # else it was trained before
        took.write_text(f"{(time.perf_counter() - start) / 60:.1f}")
    log(f"  {name}: step {done.step} of {case.options['max_steps']}, {took.read_text()} minutes")
    return done, case.exported(done.folder, name)


def control(case: Case, log: Log) -> Predictor:
    """The FP32 model after the same steps, from labels and its own answers."""
    settings = PruneSettings(
        width_mult_list=(1,),  # type: ignore[arg-type]
        distill_hidden=0.0,
        distill_logits=1.0,
        label_loss=1.0,
        reorder=False,
    )
    work = case.scratch / "control"
    run = TrainingRun(case.folder, case.split.train, case.split.choose, work, case.options, SEED)
    (made,) = train_widths(run, settings)
    log(f"  control: step {made.step} of {case.options['max_steps']}")
    return case.predictor(engines.load("torch", load_module(made.folder)))


def agreement(case: Case, done: Trained, proto: Any) -> list[tuple[str, ...]]:
    """Of each engine: the shares of argmaxes and answers on dev rows that are the fake-quantized model's, and |Δlogit|.

    Beside them the same of the fake-quantized model itself with embeddings changed by a millionth of each.
    """
    settings = replace(SETTINGS, use_pact=False)

    def faked(nudge: float = 0.0) -> Predictor:
        module: Any = load_module(done.folder)
        torch.manual_seed(SEED)
        with torch.no_grad():
            table = module.get_input_embeddings().weight
            table.mul_(1 + nudge * torch.randn_like(table))
        model = FakeQuantized(module, done.quant_map, find_targets(proto), settings).model
        return case.predictor(engines.load("torch", model))

    others = {
        name: case.int8(proto, done.quant_map, "agreement", name) for name in engines.installed() if name != "torch"
    }
    rows = case.split.report
    own, found = answer(faked(), rows), []
    for name, other in {**others, NUDGED: faked(NUDGE)}.items():
        answered = answer(other, rows)
        seen = compare(other.task, own, answered)
        shares = same_argmax(own.logits, answered.logits, case.folder.task.centred_axis), seen.same_answer
        columns = *(f"{100 * share:.2f} %" for share in shares), f"{seen.mean_abs_logit_change or 0.0:.5f}"
        found.append((case.subject.name, name, *columns))
    return found


def same_argmax(logits: Sequence[Any], others: Sequence[Any], axis: int | None) -> float:
    """The share of equal largest places: of a row's labels, a token's tags, a window's starts and ends."""
    pairs = zip(logits, others, strict=True)
    return float(np.concatenate([np.ravel(a.argmax(axis) == b.argmax(axis)) for a, b in pairs]).mean())


@dataclass(frozen=True)
class Seen:
    """A paired difference in points, the ends of its interval, and on how many rows."""

    value: float
    low: float
    high: float
    rows: int

    @classmethod
    def pooled(cls, every: Sequence[Seen]) -> Seen:
        """Weighed by rows; the models' rows are independent, so that the halves of intervals add as squares."""
        rows = sum(seen.rows for seen in every)
        value = sum(seen.rows / rows * seen.value for seen in every)
        below, above = (
            sum((seen.rows / rows * (getattr(seen, name) - seen.value)) ** 2 for seen in every) ** 0.5
            for name in ("low", "high")
        )
        return cls(value, value - below, value + above, rows)

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def show(log: Log, case: Case, found: Mapping[str, Predictor], against: str = PTQ) -> dict[str, Seen]:
    """One line each; gives drops, and what QAT adds to PTQ."""
    rows, name = case.split.report, case.subject.name
    scored: dict[str, Score] = {what: score(predictor, rows) for what, predictor in found.items()}
    pooled = {}
    for what, after in scored.items():
        metrics = ", ".join(f"{metric} {100 * value:.2f}" for metric, value in after.metrics.items())
        if what == FP32:
            log.row(name, what, metrics, "", "", "", "", str(len(rows)))
            continue
        seen = compare(found[what].task, scored[FP32], after)
        other = compare(found[what].task, scored[against], after)
        if seen.drop is None or other.drop is None:
            continue
        drop, low, high = (100 * value for value in (seen.drop.drop, seen.drop.low, seen.drop.high))
        gain, least, most = (0.0 - 100 * value for value in (other.drop.drop, other.drop.high, other.drop.low))
        lost, won = Seen(drop, low, high, len(rows)), Seen(gain, least, most, len(rows))
        added = "" if what == against else str(won)
        change = f"{seen.mean_abs_logit_change:.4f}" if seen.mean_abs_logit_change is not None else ""
        same = f"{100 * seen.same_answer:.2f} %"
        log.row(name, what, metrics, str(lost), added, same, change, str(len(rows)))
        pooled[what] = lost
        if what == QAT:
            pooled[OVER] = won
    return pooled


def columns(against: str = PTQ) -> tuple[str, ...]:
    over = f"over {against} (95 %)"
    return "model", "what", "score", "drop (95 %)", over, "same answer", "mean abs. Δlogit", "dev rows"


def ablate(log: Log, case: Case) -> None:
    """PACT and distillation, each on and off."""
    found = {FP32: case.exact, PTQ: calibrated(case, log, COARSE)}
    for what, settings in VARIANTS.items():
        name = what.replace(", ", "-").replace(" ", "-")
        done, proto = trained(case, settings, name, log)
        found[what] = case.int8(proto, done.quant_map, name)
    log()
    log.head(*columns(f"*{DISTILLED}*"))
    show(log, case, found, DISTILLED)


def show_pooled(log: Log, drops: Mapping[str, Sequence[Seen]]) -> None:
    log()
    for what, every in drops.items():
        over = Seen.pooled(every)
        name = what if what == OVER else f"{what}, drop"
        log(f"{name}, pooled over {over.rows} dev rows of {len(every)} models: {over} points")


def show_agreement(log: Log, rows: Sequence[Sequence[str]]) -> None:
    log()
    log("The exported graph against the fake-quantized torch model, on the dev rows:")
    log.head("model", "engine", "same argmax", "same answer", "mean abs. Δlogit")
    for row in rows:
        log.row(*row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("names", nargs="*", default=list(STEPS))
    parser.add_argument("--ablate", metavar="NAME", help="this model alone, with and without PACT and distillation")
    parser.add_argument("--steps", type=int, help="so many for every model (those of STEPS)")
    parser.add_argument("--rows", type=int, help="rows that choose and dev rows to report on, the first so many (all)")
    parser.add_argument("--learning_rate", type=float, default=5e-6)
    parser.add_argument("--work", type=Path, help="keep trainings here, and use those that are")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    log = Log(args.out)
    settings = f"--steps {args.steps} --learning_rate {args.learning_rate}"
    what = f" --ablate {args.ablate} {settings}" if args.ablate else ""
    log(f"python benchmarks/qat.py MODELS DATA{what}; {machine()}, {torch.get_num_threads()} threads train")
    log(f"{(COARSE if args.ablate else SETTINGS).as_json()}")
    with work_folder(args.work) as scratch:

        def case_of(name: str) -> Case:
            subject = Subject.find(name, args.models, args.data)
            case = Case.of(subject, scratch / name, args.rows, args.steps, args.learning_rate)
            log(f"{name}: {len(case.split.train)} training rows, {len(case.split.choose)} choose; {case.options}")
            return case

        if args.ablate:
            ablate(log, case_of(args.ablate))
            return
        opened, agreements = [], []
        for name in args.names:
            case = case_of(name)
            point = calibrated(case, log)
            done, proto = trained(case, SETTINGS, "qat", log)
            trained_on = control(case, log)
            int8 = case.int8(proto, done.quant_map, "qat")
            opened.append((case, {FP32: case.exact, PTQ: point, QAT: int8, CONTROL: trained_on}))
            agreements += agreement(case, done, proto)
        log()
        log.head(*columns())
        drops: dict[str, list[Seen]] = {}
        for case, found in opened:
            for what, drop in show(log, case, found).items():
                drops.setdefault(what, []).append(drop)
        show_pooled(log, drops)
        show_agreement(log, agreements)


if __name__ == "__main__":
    main()
