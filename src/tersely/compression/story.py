"""The story: check, prune, make candidates, score every one, choose, write one folder."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..errors import UserError, wrong_option
from ..graphs.first_position import keep_first_position
from ..options.compress import CompressOptions
from ..options.effects import check, check_training, resolve, trains
from ..progress import SILENT, Progress
from ..report import draw_reports
from ..strategy import Plan, check_rows
from ..tasks.options import TaskOptions
from ..training.losses import Criterion
from .choice import ROUNDING
from .divide import Data, UnreadData, divide_rows
from .int8_training import check_int8_training, train_parents
from .make import check_makeable
from .measured import Baseline
from .output import Output
from .parents import make_parents
from .pruning import Pruning, check_pruning, forget_training
from .report import as_json
from .result import CompressionResult
from .search import Search
from .settings import settings
from .source import Origin, find_origin, open_source
from .trial import Trial

__all__ = ["CompressionResult", "Data", "UnreadData", "compress"]

SMALLEST = 0.25
"""What a candidate takes of the FP32 model's size, at least."""
TRAINING = 4
"""How many times the model's size a training takes at least: a checkpoint has weights and two moments of each."""


def compress(
    model: str | Path | Origin | None,
    output_dir: str | Path,
    data: Data | UnreadData,
    options: CompressOptions | None = None,
    *,
    training: Mapping[str, Any] | None = None,
    task_options: TaskOptions | None = None,
    given: Set[str] = frozenset(),
    overwrite: bool = False,
    progress: Progress = SILENT,
    criterion: Criterion | None = None,
    command: Sequence[str] | None = None,
) -> CompressionResult:
    """Make a fine-tuned model smaller in every way that the options ask for, and keep the best.

    `model`: a folder, or what `find_origin` would make of it. `data` holds the rows that train, calibrate, choose and
    report; those that are not read yet are read once options, output folder and model have been checked. `training`:
    options of transformers, for plans that train; `criterion`: the user's loss in the place of the task's own. `given`:
    names of options that the user set; those that can have no effect are refused. Needs a few minutes for a small
    encoder, with `dynabert` and `qat` their training besides; the model folder is not changed. A run that was killed
    while it trained, or later, goes on from there when it is started again. `command`: the words that were typed, for
    those who want to run it again.
    """
    options, training = options or CompressOptions(), training or {}
    plans, notes = resolve(options, options.plans())
    scored = data.evaluation is not None
    _check_columns(data)
    check(options, plans, given, scored=scored, bounds=(-math.inf, math.inf))
    check_training(training, plans)
    check_rows(plans, train=data.train is not None, evaluation=scored)
    output = Output(output_dir, overwrite=overwrite)
    origin = model
    if not isinstance(origin, Origin):
        origin = find_origin(origin, options.input_infer_model_path, task_options or TaskOptions())
    task = origin.folder.task
    check(options, plans, given, scored=scored, bounds=task.metrics[task.metric].bounds)
    data = data.read() if isinstance(data, UnreadData) else data
    asked = settings(options, data, given=given, training=training, task_options=task_options, command=command)
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
