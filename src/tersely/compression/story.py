"""The story: check, prune, make candidates, score every one, choose, write one folder."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from ..errors import UserError, wrong_option
from ..graphs.first_position import keep_first_position
from ..options.compress import CompressOptions
from ..options.effects import check, check_training, resolve, trains
from ..progress import SILENT, Progress
from ..report import draw_reports
from ..strategy import Plan, check_rows
from .choice import ROUNDING
from .divide import Data, UnreadData, divide_rows
from .int8_training import check_int8_training, train_parents
from .make import check_makeable
from .measured import Baseline
from .output import Output
from .parents import make_parents
from .pruning import Pruning, check_pruning, forget_training
from .report import as_json
from .request import Request
from .result import CompressionResult
from .search import Search
from .source import Origin, find_origin, open_source
from .trial import Trial

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
    options, training, criterion = request.options, request.training, request.criterion
    plans, notes = resolve(options, options.plans())
    scored = request.data.evaluation is not None
    _check_columns(request.data)
    check(options, plans, request.set_options, scored=scored, bounds=(-math.inf, math.inf))
    check_training(training, plans)
    check_rows(plans, train=request.data.train is not None, evaluation=scored)
    output = Output(request.output_dir, overwrite=request.overwrite)
    origin = request.model
    if not isinstance(origin, Origin):
        origin = find_origin(origin, options.input_infer_model_path, request.task_options)
    task = origin.folder.task
    check(options, plans, request.set_options, scored=scored, bounds=task.metrics[task.metric].bounds)
    data = request.data.read() if isinstance(request.data, UnreadData) else request.data
    asked = request.settings(data)
    rows = divide_rows(data, origin.folder, options, plans)
    smaller = check_pruning(origin.folder, options, plans, training)
    check_int8_training(origin.folder, options, plans, training)
    output.expect_room(_room(origin, plans, smaller))
    notes = (*notes, *rows.notes)
    with output:
        source = open_source(origin, output.scratch, input_dtype=options.input_dtype, progress=progress)
        for note in notes:  # now that nothing more can be wrong with what was given
            progress.say(note)
        keep_first_position(source.proto)
        check_makeable(source.proto, plans, options)
        trial = Trial(source, rows, output.scratch, progress, options.seed)
        _check_origin(trial.fp32, options)
        if not options.resume_from_checkpoint:
            forget_training(output.work)
        groups = frozenset(plan.pruning for plan in plans)
        places = (output.work, output.scratch)
        pruning = Pruning(origin.folder, rows, options, training, groups, *places, progress, criterion)
        parents = make_parents(source, plans, pruning, rows, options, output.scratch, progress)
        parents = train_parents(parents, pruning, output.scratch)
        result = Search(source, parents, rows, options, trial, output, progress).tell(notes)
        result = replace(result, settings=asked)
        content = as_json(result)
        output.publish(content, _reports(content, progress))
    return result


def _room(origin: Origin, plans: Sequence[Plan], smaller: int) -> int:
    """Bytes that the run needs at least: the FP32 graph, what is trained, and of every model torch, graph and INT8."""
    trained = TRAINING if trains(plans) else 0
    return int(origin.size * (1 + trained + SMALLEST * len(plans) * max(1, smaller)))


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
