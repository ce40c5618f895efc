"""Make candidates of every parent, measure and choose; while the drop is too large try what else there is."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ..artifact import read
from ..deploy.card import score_note
from ..deploy.probe import probe_examples, probe_features
from ..engines import GRAPH_ENGINES, installed
from ..measure.score import Comparison
from ..options.compress import CompressOptions
from ..progress import Progress
from ..quantize.samples import Samples
from ..quantize.sensitivity import sensitivity, too_harmful
from ..strategy import PTQ
from . import choice
from .candidate import Candidate, link_artifact, seal_candidate, write_candidate
from .choice import ROUNDING, Choice, Screened, screen
from .divide import DividedRows
from .make import Made, equal, make
from .measured import Measured
from .output import Output
from .parents import Parent
from .pareto import Standing, pareto
from .result import CompressionResult
from .source import Source
from .trial import Trial


@dataclass(frozen=True)
class Offspring:
    """A candidate before it is written, and the model that it is made of."""

    parent: Parent
    made: Made

    def called(self, name: str) -> Offspring:
        """The same under another name."""
        return replace(self, made=replace(self.made, name=name))


@dataclass
class Search:
    """What the steps of one run share. `harm`: of each layer, by the parent's label."""

    origin: Source
    parents: Sequence[Parent]
    rows: DividedRows
    options: CompressOptions
    trial: Trial
    output: Output
    progress: Progress
    harm: dict[str, dict[str, float]] = field(default_factory=dict)
    screened: list[Screened] = field(default_factory=list)

    def tell(self, notes: Sequence[str]) -> CompressionResult:
        """Make, measure, choose; while the drop is too large try what else there is."""
        made, same = self._make_all()
        measured = self._measure(made)
        further = self._further(made)
        while not self._holds(measured) and (more := next(further, None)) is not None:
            measured += self._measure([one for one in more if not _known(one, measured)])
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
            source=self.origin,
            parents=tuple(self.parents),
            pareto=self._pareto(measured),
            output_dir=self.output.place,
            same=same,
            notes=tuple(notes),
            screened=tuple(self.screened),
            sensitivity=self.harm.get(self._parent(best).label, {}),
            test=test,
            max_drop=self.options.max_drop,
            met=self._within(best),
        )

    def _make_all(self) -> tuple[list[Offspring], dict[str, str]]:
        """Every candidate of every parent; where asked, without the layers that do harm."""
        every: list[Offspring] = []
        same: dict[str, str] = {}
        for parent in self.parents:
            made, twins = self._make(parent, parent.rows.samples)
            automatic = self.options.skip_layers == ("auto",)
            if self.options.sensitivity or automatic:
                self._find_harm(parent, made)
            if automatic and (harmful := too_harmful(self.harm.get(parent.label, {}))):
                made, twins = self._make(parent, parent.rows.samples, harmful)
            every += made
            same |= twins
        return every, same

    def _make(
        self, parent: Parent, samples: Samples | None, sensitive: Sequence[str] = ()
    ) -> tuple[list[Offspring], dict[str, str]]:
        made, same = make(
            parent.source.proto,
            parent.plans,
            self.options,
            samples,
            centred_axis=parent.source.task.centred_axis,
            width=parent.width,
            skip_layers=parent.skip_layers,
            sensitive=sensitive,
            trained=parent.trained.quant_map if parent.trained else None,
            progress=self.progress,
        )
        return [Offspring(parent, one) for one in made], same

    def _find_harm(self, parent: Parent, made: Sequence[Offspring]) -> None:
        """Run the parent once for each layer; nothing to find where nothing was quantized."""
        quantized = [one.made for one in made if one.made.plan.quantizer]
        if not quantized:
            return
        first = next((one for one in quantized if one.plan.quantizer == PTQ), quantized[0])
        source, rows = parent.source, parent.rows.judging
        pad_id, axis = source.encoder.pad_id, source.task.centred_axis
        self.harm[parent.label] = sensitivity(source.proto, first.quant_map, rows, pad_id, axis, progress=self.progress)

    def _measure(self, made: Sequence[Offspring]) -> list[Measured]:
        """Write and score; of many candidates only those that a look at a few rows leaves."""
        written = [self._write(one) for one in made]
        if len(written) > choice.MANY:
            looks = [(one, self.trial.look(one)) for one in written]
            seen = [_seen(one, look) for one, look in looks]
            kept = screen(seen)
            self.progress.say(f"Of {len(written)} candidates {len(kept)} are scored on all rows: {', '.join(kept)}.")
            self.screened += [one for one in seen if one.name not in kept]
            for one in written:
                if one.name not in kept:
                    shutil.rmtree(one.folder)
            written = [one for one in written if one.name in kept]
        return [self.trial.measure(one) for one in written]

    def _write(self, one: Offspring) -> Candidate:
        wanted = self.options.engines or installed(GRAPH_ENGINES)
        made, folder = one.made, self.output.scratch / "candidates" / one.made.name
        return write_candidate(one.parent.source, made.name, made.plan, made.quant_map, folder, wanted)

    def _further(self, made: Sequence[Offspring]) -> Iterator[list[Offspring]]:
        """What to try while the drop is above `max_drop`: more rows, then the most harmful layers left float."""
        above = "The drop is above --max_drop:"
        calibrated = [parent for parent in self.parents if any(plan.quantizer == PTQ for plan in parent.plans)]
        with_more = [(parent, parent.rows.more) for parent in calibrated if parent.rows.more is not None]
        if with_more:
            self.progress.say(f"{above} calibrating on {', '.join(with_more[0][1].sets)} rows.")
            yield [one for parent, more in with_more for one in self._make(parent, more)[0]]
        for parent in self.parents:
            if parent.label not in self.harm:
                self._find_harm(parent, [one for one in made if one.parent is parent])
        left = 1
        while any(left < len(harm) for harm in self.harm.values()):  # with all float there is nothing left to ship
            spared = []
            for parent in self.parents:
                harm = self.harm.get(parent.label, {})
                if left < len(harm):
                    self.progress.say(f"{above} leaving {left} of {len(harm)} layers {_of(parent)}float.")
                    spared += self._make(parent, parent.rows.samples, list(harm)[:left])[0]
            yield [one.called(f"{one.made.name}-float{left}") for one in spared]
            left *= 2

    def _choose(self, measured: Sequence[Measured]) -> Choice:
        task = self.origin.task
        metric = task.metrics[task.metric]
        pool = [one for one in measured if self._within(one)] or list(measured)
        chosen = choice.choose(
            [one.contender() for one in pool],
            metric.value if self.rows.labelled and metric.has_statistics else None,
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

    def _pareto(self, measured: Sequence[Measured]) -> tuple[str, ...]:
        task = self.origin.task
        sign = 1 if task.metrics[task.metric].greater_is_better else -1
        standings = []
        for one in measured:
            value = sign * one.score.value if one.score else one.comparison.same_answer
            standings.append(Standing(one.name, value, one.contender().speed, one.size))
        return pareto(standings)

    def _parent(self, one: Measured) -> Parent:
        return next(parent for parent in self.parents if parent.source is one.candidate.source)

    def _sealed(self, one: Measured) -> Measured:
        """Make the artifact of a candidate; from here on it lies where it will be published."""
        source = one.candidate.source
        probed = probe_features(source.task, source.encoder, probe_examples(source.task, self.rows.scoring))
        stamped = {**score_note(one.score, one.engine), "on": self.rows.chosen_on} if one.score else None
        artifact = seal_candidate(one.candidate, probed, stamped, self.trial.runners(one.candidate))
        size = sum(path.stat().st_size for path in artifact.folder.rglob("*") if path.is_file())
        place = self.output.place / "candidates" / one.name
        return replace(one, folder_size=size, candidate=replace(one.candidate, folder=place))


def _seen(one: Candidate, look: Comparison) -> Screened:
    change = look.mean_abs_logit_change or 0.0
    return Screened(one.name, one.plan.name, look.same_answer, change, one.source.digest)


def _known(one: Offspring, measured: Sequence[Measured]) -> bool:
    """Whether the same model with the same integers was measured already."""
    source = one.parent.source
    others = (other.candidate for other in measured if other.candidate.source is source)
    return any(equal(one.made.quant_map, other.quant_map) for other in others)


def _of(parent: Parent) -> str:
    return f"of {parent.label} " if parent.label else ""
