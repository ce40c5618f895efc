"""The story: check, read, make candidates, score every one, choose, write one folder."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

from ..artifact import Artifact, read
from ..engines import installed
from ..errors import Failure, UserError
from ..graphs.first_position import keep_first_position
from ..measure.score import Score
from ..options import TaskOptions
from ..probe import probe_examples, probe_features
from ..progress import SILENT, Progress
from ..quantize.sensitivity import sensitivity, too_harmful
from ..strategy import Plan, check_offered, check_rows
from . import choice
from .candidate import Candidate, link_artifact, seal_candidate, write_candidate
from .choice import Choice, Screened, screen
from .divide import Data, DividedRows, divide_rows
from .make import Made, make
from .options import CompressOptions, check, resolve
from .output import Output
from .report import as_json
from .source import Source, open_source
from .trial import Baseline, Measured, Trial


@dataclass(frozen=True)
class CompressionResult:
    """The best artifact, everything that was tried, the rule that chose, and what it was all measured with."""

    best: Measured
    candidates: tuple[Measured, ...]
    choice: Choice
    fp32: Baseline
    rows: DividedRows
    source: Source = field(repr=False)
    output_dir: Path
    same: dict[str, str]
    notes: tuple[str, ...]
    sensitivity: dict[str, float]
    test: tuple[Score, Score] | None
    met: bool
    """Whether the drop is at most `max_drop`; True where none was asked for."""


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
    check(options, plans, given, scored=data.evaluation is not None)
    check_rows(plans, train=data.train is not None, evaluation=data.evaluation is not None)
    with Output(output_dir, overwrite=overwrite) as output:
        source = open_source(
            model,
            options.input_infer_model_path,
            task_options or TaskOptions(),
            output.scratch,
            input_dtype=options.input_dtype,
            progress=progress,
        )
        keep_first_position(source.proto)
        rows = divide_rows(data, source, options, plans)
        for note in (*notes, *rows.notes):
            progress.say(note)
        trial = Trial(source, rows, progress)
        _check_origin(trial.fp32, options)
        run = _Run(source, rows, options, plans, trial, output, progress)
        result = run.tell(notes)
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

    def tell(self, notes: Sequence[str]) -> CompressionResult:
        """Make, measure, choose; while the drop is too large leave float what harms most, and try again."""
        skip = () if self.options.skip_layers == ("auto",) else self.options.skip_layers
        made, same = self._make(skip)
        if self.options.sensitivity or self.options.skip_layers == ("auto",):
            self._find_harm(made)
        if self.options.skip_layers == ("auto",) and (harmful := too_harmful(self.harm)):
            made, same = self._make(skip, sensitive=harmful)
        measured = self._measure(made)
        chosen = self._choose(measured)
        met = self._holds(measured, chosen)
        left = 1
        while not met and (more := self._spared(skip, left)):
            measured += self._measure(more)
            chosen = self._choose(measured)
            met = self._holds(measured, chosen)
            left *= 2
        self.trial.time(measured)
        chosen = self._choose(measured)
        best = next(one for one in measured if one.name == chosen.best)
        artifacts = {one.name: self._seal(one) for one in measured}
        link_artifact(artifacts[best.name], self.output.scratch / "best")
        test = self.trial.test(best)
        return CompressionResult(
            best,
            tuple(measured),
            chosen,
            self.trial.fp32,
            self.rows,
            self.source,
            self.output.place,
            same,
            tuple(notes),
            self.harm,
            test,
            self._holds(measured, chosen),
        )

    def _make(self, skip: Sequence[str], sensitive: Sequence[str] = ()) -> tuple[list[Made], dict[str, str]]:
        return make(
            self.source.proto,
            self.plans,
            self.options,
            self.rows.samples,
            skip_layers=skip,
            sensitive=sensitive,
            progress=self.progress,
        )

    def _find_harm(self, made: Sequence[Made]) -> None:
        first = next((one for one in made if one.plan.quantizer == "ptq"), made[0])
        self.harm = sensitivity(
            self.source.proto,
            first.quant_map,
            self.rows.judging_features(self.source),
            self.source.encoder.pad_id,
            self.source.task.centred_axis,
            progress=self.progress,
        )

    def _measure(self, made: Sequence[Made]) -> list[Measured]:
        """Write and score; of many candidates only those that a look at a few rows leaves."""
        written = [self._write(one) for one in made]
        looks = [self.trial.look(one) for one in written] if len(written) > choice.MANY else []
        if looks:
            kept = screen(
                [
                    Screened(one.name, one.plan.name, look.same_answer, look.mean_abs_logit_change or 0.0)
                    for one, look in zip(written, looks, strict=True)
                ]
            )
            self.progress.say(f"Of {len(written)} candidates {len(kept)} are scored on all rows: {', '.join(kept)}.")
            written = [one for one in written if one.name in kept]
        return [self.trial.measure(one) for one in written]

    def _write(self, made: Made) -> Candidate:
        wanted = self.options.engines or tuple(name for name in installed() if name != "torch")
        folder = self.output.scratch / "candidates" / made.name
        return write_candidate(self.source.proto, made.name, made.plan, made.quant_map, folder, wanted)

    def _spared(self, skip: Sequence[str], count: int) -> list[Made]:
        """The candidates once more with the most harmful layers left float; none when all are."""
        if not any(plan.quantizer for plan in self.plans):
            return []
        if not self.harm:
            self._find_harm(self._make(skip)[0])
        harmful = list(self.harm)[:count]
        if count >= 2 * len(self.harm):
            return []
        self.progress.say(f"The drop is above --max_drop: leaving {len(harmful)} of {len(self.harm)} layers float.")
        made, _ = self._make(skip, sensitive=harmful)
        return [Made(f"{one.name}-float{len(harmful)}", one.plan, one.quant_map) for one in made]

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
        return Choice(chosen.best, chosen.eligible, {**chosen.reasons, **beyond}, chosen.rule)

    def _within(self, one: Measured) -> bool:
        limit, drop = self.options.max_drop, one.comparison.drop
        return limit is None or (drop is not None and drop.drop <= limit)

    def _holds(self, measured: Sequence[Measured], chosen: Choice) -> bool:
        return self._within(next(one for one in measured if one.name == chosen.best))

    def _seal(self, one: Measured) -> Artifact:
        probed = probe_features(
            self.source.task, self.source.encoder, probe_examples(self.source.task, self.rows.scoring)
        )
        return seal_candidate(one.candidate, self.source, probed, one.score, one.engine)


def _check_origin(fp32: Baseline, options: CompressOptions) -> None:
    wanted = options.origin_metric
    if wanted is None or fp32.score is None:
        return
    off = abs(fp32.score.value - wanted)
    if off > options.origin_tolerance:
        raise UserError(
            f"The FP32 model scores {fp32.score.metric} {fp32.score.value:.4f}, '--origin_metric' says {wanted:.4f}: "
            f"further off than '--origin_tolerance' {options.origin_tolerance}.",
            hint="Is this the right model, data file and length? Nothing was compressed.",
        )


def expect_met(result: CompressionResult, options: CompressOptions) -> None:
    """Fail where the drop could not be kept to `max_drop`."""
    if not result.met and options.max_drop is not None and result.best.comparison.drop is not None:
        raise Failure(
            f"No candidate keeps the drop to {100 * options.max_drop:.2f} points: the best one has "
            f"{100 * result.best.comparison.drop.drop:.2f}.",
            where=str(result.output_dir),
            hint="All candidates are there. Give more calibration rows, or allow more.",
        )


def open_best(result: CompressionResult) -> Artifact:
    """The artifact that was chosen."""
    return read(result.output_dir / "best")
