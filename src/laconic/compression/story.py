"""The story: check, read, make candidates, score every one, choose, write one folder."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from ..artifact import read
from ..engines import installed
from ..errors import UserError
from ..export import score_note
from ..graphs.first_position import keep_first_position
from ..options import TaskOptions
from ..probe import probe_examples, probe_features
from ..progress import SILENT, Progress
from ..quantize.samples import Samples
from ..quantize.sensitivity import sensitivity, too_harmful
from ..strategy import Plan, check_offered, check_rows
from . import choice
from .candidate import Candidate, link_artifact, seal_candidate, write_candidate
from .choice import ROUNDING, Choice, Screened, screen
from .divide import Data, DividedRows, divide_rows
from .make import Made, equal, make
from .measured import Baseline, Measured
from .option_effects import check, resolve
from .options import CompressOptions
from .output import Output
from .report import as_json
from .result import CompressionResult
from .source import Source, find_origin, open_source
from .trial import Trial

__all__ = ["CompressionResult", "Data", "compress"]

SMALLEST = 0.25
"""What a candidate takes of the FP32 model's size, at least."""


def compress(
    model: str | Path | None,
    output_dir: str | Path,
    data: Data,
    options: CompressOptions | None = None,
    *,
    task_options: TaskOptions | None = None,
    given: Set[str] = frozenset(),
    overwrite: bool = False,
    progress: Progress = SILENT,
) -> CompressionResult:
    """Make a fine-tuned model smaller in every way that the options ask for, and keep the best.

    `data` holds the rows that calibrate, choose and report. `given`: names of options that the user set; those that
    can have no effect are refused. Needs a few minutes for a small encoder; the model folder is not changed.
    """
    options = options or CompressOptions()
    plans = options.plans()
    for plan in plans:
        check_offered(plan)
    plans, notes = resolve(options, plans)
    scored = data.evaluation is not None
    _check_columns(data)
    check(options, plans, given, scored=scored, bounds=(-math.inf, math.inf))
    check_rows(plans, train=data.train is not None, evaluation=scored)
    output = Output(output_dir, overwrite=overwrite)
    origin = find_origin(model, options.input_infer_model_path, task_options or TaskOptions())
    task = origin.folder.task
    check(options, plans, given, scored=scored, bounds=task.metrics[task.metric].bounds)
    rows = divide_rows(data, origin.folder, options, plans)
    output.expect_room(int(origin.size * (1 + SMALLEST * len(plans))))
    notes = (*notes, *rows.notes)
    with output:
        source = open_source(origin, output.scratch, input_dtype=options.input_dtype, progress=progress)
        for note in notes:  # now that nothing more can be wrong with what was given
            progress.say(note)
        keep_first_position(source.proto)
        trial = Trial(source, rows, output.scratch, progress, options.seed)
        _check_origin(trial.fp32, options)
        result = _Run(source, rows, options, plans, trial, output, progress).tell(notes)
        output.publish(as_json(result))
    return result


@dataclass
class _Run:
    """What the steps of one run share."""

    source: Source
    rows: DividedRows
    options: CompressOptions
    plans: Sequence[Plan]
    trial: Trial
    output: Output
    progress: Progress
    harm: dict[str, float] = field(default_factory=dict)
    screened: list[Screened] = field(default_factory=list)

    def tell(self, notes: Sequence[str]) -> CompressionResult:
        """Make, measure, choose; while the drop is too large try what else there is."""
        made, same = self._make(self.rows.samples)
        automatic = self.options.skip_layers == ("auto",)
        if self.options.sensitivity or automatic:
            self._find_harm(made)
        if automatic and (harmful := too_harmful(self.harm)):
            made, same = self._make(self.rows.samples, harmful)
        measured = self._measure(made)
        further = self._further(made)
        while not self._holds(measured) and (more := next(further, None)) is not None:
            known = [one.candidate.quant_map for one in measured]
            measured += self._measure([one for one in more if not any(equal(one.quant_map, map_) for map_ in known)])
        measured = self.trial.time(measured)
        chosen = self._choose(measured)
        best = next(one for one in measured if one.name == chosen.best)
        weighed, test = self.trial.weigh(best), self.trial.test(best)
        done = [self._sealed(weighed if one is best else one) for one in measured]
        link_artifact(read(best.candidate.folder, verify=False), self.output.scratch / "best")
        return CompressionResult(
            best=next(one for one in done if one.name == chosen.best),
            candidates=tuple(done),
            choice=chosen,
            fp32=self.trial.fp32,
            rows=self.rows,
            source=self.source,
            output_dir=self.output.place,
            same=same,
            notes=tuple(notes),
            screened=tuple(self.screened),
            sensitivity=self.harm,
            test=test,
            max_drop=self.options.max_drop,
            met=self._within(best),
        )

    def _make(self, samples: Samples | None, sensitive: Sequence[str] = ()) -> tuple[list[Made], dict[str, str]]:
        skip = () if self.options.skip_layers == ("auto",) else self.options.skip_layers
        return make(
            self.source.proto,
            self.plans,
            self.options,
            samples,
            skip_layers=skip,
            sensitive=sensitive,
            progress=self.progress,
        )

    def _find_harm(self, made: Sequence[Made]) -> None:
        first = next((one for one in made if one.plan.quantizer == "ptq"), made[0])
        pad_id, axis = self.source.encoder.pad_id, self.source.task.centred_axis
        rows = self.rows.judging
        self.harm = sensitivity(self.source.proto, first.quant_map, rows, pad_id, axis, progress=self.progress)

    def _measure(self, made: Sequence[Made]) -> list[Measured]:
        """Write and score; of many candidates only those that a look at a few rows leaves."""
        written = [self._write(one) for one in made]
        if len(written) > choice.MANY:
            looks = [(one, self.trial.look(one)) for one in written]
            seen = [
                Screened(one.name, one.plan.name, look.same_answer, look.mean_abs_logit_change or 0.0)
                for one, look in looks
            ]
            kept = screen(seen)
            self.progress.say(f"Of {len(written)} candidates {len(kept)} are scored on all rows: {', '.join(kept)}.")
            self.screened += [one for one in seen if one.name not in kept]
            for one in written:
                if one.name not in kept:
                    shutil.rmtree(one.folder)
            written = [one for one in written if one.name in kept]
        return [self.trial.measure(one) for one in written]

    def _write(self, made: Made) -> Candidate:
        wanted = self.options.engines or tuple(name for name in installed() if name != "torch")
        folder = self.output.scratch / "candidates" / made.name
        return write_candidate(self.source.proto, made.name, made.plan, made.quant_map, folder, wanted)

    def _further(self, made: Sequence[Made]) -> Iterator[list[Made]]:
        """What to try while the drop is above `max_drop`: more rows, then the most harmful layers left float."""
        above = "The drop is above --max_drop:"
        if self.rows.more is not None:
            self.progress.say(f"{above} calibrating on {', '.join(self.rows.more.sets)} rows.")
            yield self._make(self.rows.more)[0]
        quantized = [one for one in made if one.plan.quantizer]
        if quantized and not self.harm:
            self._find_harm(quantized)
        left = 1
        while left < len(self.harm):  # with all of them float there would be nothing left to ship
            self.progress.say(f"{above} leaving {left} of {len(self.harm)} layers float.")
            spared, _ = self._make(self.rows.samples, list(self.harm)[:left])
            yield [replace(one, name=f"{one.name}-float{left}") for one in spared]
            left *= 2

    def _choose(self, measured: Sequence[Measured]) -> Choice:
        task = self.source.task
        metric = task.metrics[task.metric]
        pool = [one for one in measured if self._within(one)] or list(measured)
        chosen = choice.choose(
            [one.contender() for one in pool],
            metric.value if self.rows.labelled else None,
            greater_is_better=metric.greater_is_better,
        )
        beyond = {one.name: "drop above --max_drop" for one in measured if one not in pool}
        rule = f"Those whose drop is above --max_drop are out. {chosen.rule}" if beyond else chosen.rule
        return Choice(chosen.best, chosen.eligible, {**chosen.reasons, **beyond}, rule)

    def _within(self, one: Measured) -> bool:
        limit, drop = self.options.max_drop, one.comparison.drop
        return limit is None or (drop is not None and drop.drop <= limit + ROUNDING)

    def _holds(self, measured: Sequence[Measured]) -> bool:
        return any(self._within(one) for one in measured)

    def _sealed(self, one: Measured) -> Measured:
        """Make the artifact of a candidate; from here on it lies where it will be published."""
        task, encoder = self.source.task, self.source.encoder
        probed = probe_features(task, encoder, probe_examples(task, self.rows.scoring))
        note = score_note(one.score, one.engine)
        runners = {f"int8_{engine}": runner for engine, runner in self.trial.runners(one.candidate).items()}
        artifact = seal_candidate(
            one.candidate,
            self.source,
            probed,
            note and {**note, "on": self.rows.chosen_on},
            {"fp32": self.trial.exact.engine, **runners},
        )
        size = sum(path.stat().st_size for path in artifact.folder.rglob("*") if path.is_file())
        place = self.output.place / "candidates" / one.name
        return replace(one, folder_size=size, candidate=replace(one.candidate, folder=place))


def _check_columns(data: Data) -> None:
    if all(rows is None for rows in (data.train, data.evaluation, data.test)):
        for name, value in asdict(data.columns).items():
            if value is not None:
                raise UserError(f"The '--{name}_column' option has no effect without rows.", hint="Leave it out.")


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
        )
