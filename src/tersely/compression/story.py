"""The story: check, prune, make candidates, score every one, choose, write one folder."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import artifact as artifacts
from ..deploy.card import score_note
from ..errors import UserError, wrong_option
from ..models.folder import ModelFolder
from ..options.compress import CompressOptions
from ..options.effects import check, check_training, check_unlabelled, resolve, trains
from ..progress import SILENT, Progress
from ..report import draw_reports
from ..strategy import PRUNE, STEPS, Plan, check_rows, lacks_train_rows
from .candidate import link_artifact, seal_candidate
from .check_models import check_int8_training, check_pruning
from .choice import ROUNDING, Measured, choose, pareto
from .divide import Data, UnreadData, divide_rows
from .evaluator import Baseline, Evaluator
from .forecast import Forecast, RunClock
from .ladder import LIMIT, Ladder
from .make_candidates import CandidateMaker, check_makeable
from .make_parents import ParentMaker
from .output import OutputFolder
from .parents import RunContext, find_model, open_model
from .report import as_json
from .request import Request
from .result import CompressionResult

__all__ = ["CompressionResult", "Data", "Request", "UnreadData", "compress"]

SMALLEST = 0.25
"""What a candidate takes of the FP32 model's size, at least."""
TRAINING = 4
"""How many times the model's size a training takes at least: a checkpoint has weights and two moments of each."""


def compress(request: Request, progress: Progress = SILENT) -> CompressionResult:
    """Make a fine-tuned model smaller in every way that the request's options ask for, and keep the best.

    Needs a few minutes for a small encoder, with `dynabert` and `qat` their training besides; the model folder is not
    changed. A run that was killed while it trained, or later, goes on from there when it is started again.
    """
    started = time.monotonic()
    options, training = request.options, request.training
    scored = request.data.evaluation is not None
    plans, notes = resolve(options, _possible(options, request.data))
    _check_columns(request.data)
    check(options, plans, request.set_options, scored=scored, bounds=(-math.inf, math.inf))
    check_training(training, plans)
    if request.data.unlabelled is not None:
        check_unlabelled(options, plans, train=request.data.train is not None)
    check_rows(plans, evaluation=scored, **_train_rows(options, plans, request.data))
    output = OutputFolder(request.output_dir, overwrite=request.overwrite)
    folder = request.model
    if not isinstance(folder, ModelFolder):
        folder = find_model(folder, options.input_infer_model_path, request.task_options)
    task = folder.task
    check(options, plans, request.set_options, scored=scored, bounds=task.metrics[task.metric].bounds)
    data = request.data.read() if isinstance(request.data, UnreadData) else request.data
    settings = request.settings(data)
    rows = divide_rows(data, task, options, plans)
    smaller = check_pruning(folder, options, plans, training)
    check_int8_training(folder, options, plans, training)
    output.expect_room(_room(folder, plans, smaller))
    if options.is_auto and folder.graph is not None:
        notes = (*notes, "A bare graph cannot be pruned: auto tries it in INT8 alone.")
    notes = (*notes, *rows.notes)
    if options.max_minutes is not None or any(PRUNE in plan.steps for plan in plans):
        progress = RunClock(progress, started)
    with output:
        run = RunContext(request, plans, rows, output.work, output.scratch, progress)
        result = replace(_find_best(folder, run, notes, output.place, started), settings=settings)
        content = as_json(result)
        output.publish(content, _reports(content, progress))
    return result


def _find_best(
    folder: ModelFolder, run: RunContext, notes: Sequence[str], output_dir: Path, started: float
) -> CompressionResult:
    """Open the model, make others of it, candidates of all; measure and choose. What is chosen lies in the scratch."""
    options, task, began = run.options, folder.task, time.monotonic()
    model = open_model(folder, run.scratch / "fp32", input_dtype=options.input_dtype, progress=run.progress)
    exported = time.monotonic()
    for note in notes:  # now that nothing more can be wrong with the options and files
        run.progress.say(note)
    check_makeable(model.proto, run.plans, options)
    evaluator = Evaluator(model, replace(run, rows=run.rows.searched))
    times = (exported - began, time.monotonic() - exported)
    _check_origin(evaluator.fp32, options)
    if not options.resume_from_checkpoint:
        shutil.rmtree(run.work, ignore_errors=True)
    models, maker = ParentMaker(model, run), CandidateMaker(run)
    forecast = Forecast(started, *times, options.max_minutes, judged=bool(run.rows.search))
    ladder = Ladder(models, maker, evaluator, run, forecast)
    candidates = ladder.climb()
    if run.rows.search:
        evaluator = Evaluator(model, run)
        candidates = [evaluator.measure(measured.candidate) for measured in candidates]
    prunes = any(PRUNE in plan.steps for plan in run.plans)
    candidates = evaluator.time(candidates, models.setting if prunes else None)
    metric = task.metrics[task.metric]
    limit = ladder.limit if options.is_auto else options.max_drop
    bounded = metric.of_system is None and bool(np.isfinite(metric.bounds).all())
    called = "--max_drop" if options.max_drop is not None else f"the limit of {100 * LIMIT:g} point"
    chosen = choose(candidates, metric.value, limit, prefer=options.prefer, bounded=bounded, limit=called)
    best = next(measured for measured in candidates if measured.name == chosen.best)
    weighed, test = evaluator.weigh(best), evaluator.test(best)
    sealed = [_seal(weighed if measured is best else measured, evaluator, run, output_dir) for measured in candidates]
    link_artifact(artifacts.read(best.candidate.folder, verify=False), run.scratch / "best")
    return CompressionResult(
        best=next(measured for measured in sealed if measured.name == chosen.best),
        candidates=tuple(sealed),
        choice=chosen,
        fp32=evaluator.fp32,
        rows=run.rows,
        source=model,
        parents=tuple(ladder.parents),
        pareto=pareto(candidates),
        output_dir=output_dir,
        same=ladder.same,
        notes=tuple(notes),
        screened=tuple(evaluator.screened),
        sensitivity=maker.harm.get(best.candidate.parent.label, {}),
        test=test,
        max_drop=limit,
        met=best.is_within(limit),
        setting=models.setting if prunes else None,
        full_shape=models.full_shape(),
        tables=models.tables(),
        rungs=tuple(ladder.rungs),
        not_tried=tuple(ladder.not_tried),
    )


def _train_rows(options: CompressOptions, plans: Sequence[Plan], data: Data | UnreadData) -> dict[str, Any]:
    """Which rows there are to train on, and the plans that need labels for that."""
    by_labels = [plan for plan in plans if options.learns_from_labels(plan)]
    return {"train": data.train is not None, "unlabelled": data.unlabelled is not None, "by_labels": by_labels}


def _possible(options: CompressOptions, data: Data | UnreadData) -> tuple[Plan, ...]:
    """The plans of the strategies; of `auto` those that these rows and this model allow."""
    plans, graph = options.plans(), options.input_infer_model_path is not None
    if not options.is_auto:
        return plans
    plans = tuple(plan for plan in plans if not lacks_train_rows(plan, **_train_rows(options, plans, data)))
    return tuple(plan for plan in plans if not graph or all(STEPS[step].takes_graph for step in plan.steps))


def _seal(measured: Measured, evaluator: Evaluator, run: RunContext, output_dir: Path) -> Measured:
    """Make the artifact of a candidate; from here on it lies where it will be published."""
    stamped = {**score_note(measured.score, measured.engine), "on": run.rows.chosen_on} if measured.score else None
    artifact = seal_candidate(measured.candidate, run.rows.scoring, stamped, evaluator.runners(measured.candidate))
    size = sum(path.stat().st_size for path in artifact.folder.rglob("*") if path.is_file())
    place = output_dir / "candidates" / measured.name
    return replace(measured, folder_size=size, candidate=replace(measured.candidate, folder=place))


def _room(folder: ModelFolder, plans: Sequence[Plan], smaller: int) -> int:
    """Bytes that the run needs at least: the FP32 graph, what is trained, and of every model torch, graph and INT8."""
    trained = TRAINING if trains(plans) else 0
    return int(folder.size * (1 + trained + SMALLEST * len(plans) * max(1, smaller)))


def _reports(content: dict[str, Any], progress: Progress) -> dict[str, str]:
    """The reports by file name, drawn from what will lie in the file."""
    try:
        return draw_reports(json.loads(json.dumps(content)))
    except Exception as error:  # noqa: BLE001 - a page that cannot be drawn must not cost hours of training
        progress.say(f"The report could not be drawn (a bug: {type(error).__name__}: {error}). The result is whole.")
        return {}


def _check_columns(data: Data | UnreadData) -> None:
    if all(rows is None for rows in (data.train, data.evaluation, data.test, data.unlabelled)):
        for name, value in asdict(data.columns).items():
            if value is not None:
                raise wrong_option(f"{name}_column", "has no effect without rows.", hint="Leave it out.")


def _check_origin(fp32: Baseline, options: CompressOptions) -> None:
    wanted = options.origin_metric
    if wanted is None or fp32.score is None:
        return
    off = abs(fp32.score.value - wanted)
    if off > options.origin_tolerance + ROUNDING:
        raise UserError(
            f"The FP32 model scores {fp32.score.metric} {fp32.score.value:.4f}, '--origin_metric' says {wanted:.4f}: "
            f"further off than '--origin_tolerance' {options.origin_tolerance}.",
            hint="Is this the right model, data file and length? Nothing was compressed.",
            option="origin_metric",
        )
