"""Score a model folder or an artifact on labelled rows, in the engine that will run it."""

from __future__ import annotations

import argparse
from typing import Any

from ..deploy.systems import SPELLINGS, System, opener
from ..engines.cpu import cpu
from ..errors import UserError
from ..measure.score import Comparison, Score, compare, score
from ..options.data import DataOptions
from ..progress import Progress
from ..runtime.hub import local_folder
from ..tasks.options import TaskOptions
from . import arguments as flags
from . import console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    flags.add_model(parser, "model folder or artifact, also hub:owner/name")
    parser.add_argument("--engine", default="auto", help=f"auto, {', '.join(SPELLINGS)}")
    parser.add_argument("--against", metavar="DIR", help="a second model; the drop from it is shown")
    parser.add_argument("--against_engine", metavar="ENGINE", help="the second model's engine (auto)")
    parser.add_argument("--threads", type=int, help="threads (all cores)")
    parser.add_argument("--batch_size", type=int, default=16, help="rows a batch (16)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    flags.add_options(parser, DataOptions, only=flags.EVAL_OPTIONS)
    flags.add_options(parser, TaskOptions)


def run(arguments: argparse.Namespace) -> int:
    """Score, compare, print."""
    model = flags.needed_model(arguments)
    data, options = flags.take(arguments, DataOptions), flags.take(arguments, TaskOptions)
    if not arguments.against:
        flags.refuse_set(arguments, {"against_engine"}, "--against")
    shown = console.progress()
    rows = flags.needed_rows(data, "dev")
    with opener(options, shown) as open_system:
        system = open_system(local_folder(model), arguments.engine, arguments.threads)
        other = None
        if arguments.against:
            against = local_folder(arguments.against)
            other = open_system(against, arguments.against_engine or "auto", arguments.threads)
            _check_alike(system, other)
        examples = system.predictor.task.read(rows, flags.columns(data), labelled=True)
        scored = _score(system, examples, arguments.batch_size, shown)
        comparison = None
        if other is not None:
            reference = _score(other, examples, arguments.batch_size, shown)
            comparison = compare(system.predictor, examples, reference, scored)
    result = as_json(system, scored, comparison)
    if arguments.json:
        console.emit(result)
    else:
        _print(system, scored, comparison)
    return 0


def _check_alike(system: System, other: System) -> None:
    """Answers can be set against each other where both mean the same by a label's number."""
    ours, theirs = system.predictor.task, other.predictor.task
    if ours.name != theirs.name or ours.labels != theirs.labels:
        said = [f"{task.name} ({', '.join(task.labels[:6])})" if task.labels else task.name for task in (ours, theirs)]
        raise UserError(f"The two models cannot be compared: {said[0]} against {said[1]}.", where=other.model)


def as_json(system: System, scored: Score, comparison: Comparison | None) -> dict[str, Any]:
    """Give the result in plain types."""
    here = cpu()
    result: dict[str, Any] = {
        "model": system.model,
        "score": scored.value,
        "metric": scored.metric,
        "metrics": scored.metrics,
        "interval": scored.interval,
        "rows": scored.rows,
        "seconds": scored.seconds,
        "engine": system.engine,
        "threads": system.predictor.engine.threads,
        "cpu": {"class": here.cpu_class, "name": here.name},
    }
    if comparison is not None and comparison.drop is not None:
        result |= {
            "drop": comparison.drop.drop,
            "drop_interval": [comparison.drop.low, comparison.drop.high],
            "same_answer": comparison.same_answer,
            "mean_abs_logit_change": comparison.mean_abs_logit_change,
        }
    return result


def _score(system: System, examples: list[Any], batch_size: int, shown: Progress) -> Score:
    predictor = system.predictor.with_batch_size(batch_size)
    return score(predictor, examples, title=f"evaluate {system.model} on {system.engine}", progress=shown)


def _print(system: System, scored: Score, comparison: Comparison | None) -> None:
    head = ["metric", "score", "95 % interval"]
    rows = [[scored.metric, console.points(scored.value), console.interval(scored.interval)]]
    rows += [[name, console.points(value), ""] for name, value in scored.metrics.items() if name != scored.metric]
    where = f"{system.engine}, {system.predictor.engine.threads} threads, CPU class {cpu().cpu_class}"
    console.table(f"{system.model}: {scored.rows} rows in {scored.seconds:.1f} s on {where}", head, rows)
    if comparison is not None and comparison.drop is not None:
        drop = comparison.drop
        change = comparison.mean_abs_logit_change
        print(
            f"drop {console.points(drop.drop)} points ({console.interval((drop.low, drop.high))}), "
            f"same answer {100 * comparison.same_answer:.2f} %, "
            f"mean |Δlogit| {'not comparable' if change is None else f'{change:.4f}'}"
        )
