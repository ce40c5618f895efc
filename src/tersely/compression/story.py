"""The story: check, prune, make candidates, score every one, choose, write one folder."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from .. import artifact as artifacts
from ..deploy.card import score_note
from ..errors import UserError, wrong_option
from ..models.folder import ModelFolder
from ..options.compress import CompressOptions
from ..options.effects import check, check_training, resolve, trains
from ..progress import SILENT, Progress
from ..report import draw_reports
from ..strategy import Plan, check_rows
from .candidate import Candidate, link_artifact, seal_candidate
from .choice import ROUNDING, Measured, choose, pareto
from .divide import Data, UnreadData, divide_rows
from .evaluator import Baseline, Evaluator
from .make_candidates import CandidateMaker, check_makeable, equal
from .make_parents import check_int8_training, check_pruning, make_parents
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
    options, training = request.options, request.training
    plans, notes = resolve(options, options.plans())
    scored = request.data.evaluation is not None
    _check_columns(request.data)
    check(options, plans, request.set_options, scored=scored, bounds=(-math.inf, math.inf))
    check_training(training, plans)
    check_rows(plans, train=request.data.train is not None, evaluation=scored)
    output = OutputFolder(request.output_dir, overwrite=request.overwrite)
    folder = request.model
    if not isinstance(folder, ModelFolder):
        folder = find_model(folder, options.input_infer_model_path, request.task_options)
    task = folder.task
    check(options, plans, request.set_options, scored=scored, bounds=task.metrics[task.metric].bounds)
    data = request.data.read() if isinstance(request.data, UnreadData) else request.data
    asked = request.settings(data)
    rows = divide_rows(data, task, options, plans)
    smaller = check_pruning(folder, options, plans, training)
    check_int8_training(folder, options, plans, training)
    output.expect_room(_room(folder, plans, smaller))
    notes = (*notes, *rows.notes)
    with output:
        run = RunContext(request, plans, rows, output.work, output.scratch, progress)
        result = replace(_find_best(folder, run, notes, output.place), settings=asked)
        content = as_json(result)
        output.publish(content, _reports(content, progress))
    return result


def _find_best(folder: ModelFolder, run: RunContext, notes: Sequence[str], output_dir: Path) -> CompressionResult:
    """Open the model, make others of it, candidates of all; measure and choose. What is chosen lies in the scratch."""
    options, task = run.options, folder.task
    model = open_model(folder, run.scratch / "fp32", input_dtype=options.input_dtype, progress=run.progress)
    for note in notes:  # now that nothing more can be wrong with what was given
        run.progress.say(note)
    check_makeable(model.proto, run.plans, options)
    evaluator = Evaluator(model, run)
    _check_origin(evaluator.fp32, options)
    if not options.resume_from_checkpoint:
        shutil.rmtree(run.work, ignore_errors=True)
    parents = make_parents(model, run)
    maker = CandidateMaker(parents, run)
    candidates, same = maker.make_all()
    measured = evaluator.measure_all(candidates)
    more = maker.make_more(candidates)
    while not any(one.is_within(options.max_drop) for one in measured) and (others := next(more, None)) is not None:
        measured += evaluator.measure_all([one for one in others if not _is_known(one, measured)])
    measured = evaluator.time(measured)
    chosen = choose(measured, task.metrics[task.metric].value, options.max_drop)
    best = next(one for one in measured if one.name == chosen.best)
    weighed, test = evaluator.weigh(best), evaluator.test(best)
    sealed = [_seal(weighed if one is best else one, evaluator, run, output_dir) for one in measured]
    link_artifact(artifacts.read(best.candidate.folder, verify=False), run.scratch / "best")
    return CompressionResult(
        best=next(one for one in sealed if one.name == chosen.best),
        candidates=tuple(sealed),
        choice=chosen,
        fp32=evaluator.fp32,
        rows=run.rows,
        source=model,
        parents=tuple(parents),
        pareto=pareto(measured),
        output_dir=output_dir,
        same=same,
        notes=tuple(notes),
        screened=tuple(evaluator.screened),
        sensitivity=maker.harm.get(best.candidate.parent.label, {}),
        test=test,
        max_drop=options.max_drop,
        met=best.is_within(options.max_drop),
    )


def _is_known(one: Candidate, measured: Sequence[Measured]) -> bool:
    """Whether the same model with the same integers was measured already."""
    others = (other.candidate for other in measured if other.candidate.parent is one.parent)
    return any(equal(one.quant_map, other.quant_map) for other in others)


def _seal(one: Measured, evaluator: Evaluator, run: RunContext, output_dir: Path) -> Measured:
    """Make the artifact of a candidate; from here on it lies where it will be published."""
    stamped = {**score_note(one.score, one.engine), "on": run.rows.chosen_on} if one.score else None
    artifact = seal_candidate(one.candidate, run.rows.scoring, stamped, evaluator.runners(one.candidate))
    size = sum(path.stat().st_size for path in artifact.folder.rglob("*") if path.is_file())
    place = output_dir / "candidates" / one.name
    return replace(one, folder_size=size, candidate=replace(one.candidate, folder=place))


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
    if all(rows is None for rows in (data.train, data.evaluation, data.test)):
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
