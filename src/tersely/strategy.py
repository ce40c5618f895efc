"""What each step is, and strategy words such as "ptq+embeddings" as plans: steps in the order in which they run."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .errors import UserError, nearest

PRUNE_EMBEDDINGS, PRUNE, DYNABERT = "prune_embeddings", "prune", "dynabert"
QAT, PTQ, DYNAMIC, EMBEDDINGS = "qat", "ptq", "dynamic", "embeddings"

DEMANDS = ("nothing", "some rows", "train rows", "train and eval rows")
"""What plans need, each with all that the ones before it have."""

FIXED, MOVING, AT_RUN_TIME = "range_abs_max", "moving_average_abs_max", "abs_max"
"""Where matmuls get the range of their inputs from: all rows, a moving average over batches, each batch anew."""


@dataclass(frozen=True)
class Step:
    """What one step is. The options declare which steps they act on."""

    needs: str
    """The rows that it cannot do without: one of `DEMANDS`."""
    prunes: bool = False
    """Whether it makes another, smaller model first; the others work on its graph."""
    ranges: str | None = None
    """Of a step that turns matmuls to INT8: where their inputs' ranges come from by default; None: it does not."""
    losses: Mapping[str, float] = field(default_factory=dict)
    """Of a step that trains: the weights of losses that are its own by default; empty: it does not train."""
    takes_graph: bool = False
    """Whether a bare ONNX graph is enough; the others need the model."""
    reads_text: bool = False
    """Whether its rows must be texts, not tokens."""

    @property
    def quantizes(self) -> bool:
        """Whether it turns matmuls to INT8."""
        return self.ranges is not None

    @property
    def calibrates(self) -> bool:
        """Whether its ranges are taken from rows before the model is run."""
        return self.ranges not in (None, AT_RUN_TIME)

    @property
    def reads_train_rows(self) -> bool:
        """Whether it cannot do without training rows."""
        return DEMANDS.index(self.needs) >= DEMANDS.index("train rows")


STEPS = {
    PRUNE_EMBEDDINGS: Step("train rows", prunes=True, reads_text=True),
    PRUNE: Step("some rows", prunes=True),
    DYNABERT: Step("train and eval rows", prunes=True, losses={"distill_hidden": 0.1, "label_loss": 0.0}),
    QAT: Step("train and eval rows", ranges=MOVING, losses={"distill_hidden": 0.0, "label_loss": 1.0}),
    PTQ: Step("some rows", ranges=FIXED, takes_graph=True),
    DYNAMIC: Step("nothing", ranges=AT_RUN_TIME, takes_graph=True),
    EMBEDDINGS: Step("nothing", takes_graph=True),
}
"""Every step in the order of execution."""

QUANTIZERS = tuple(name for name, step in STEPS.items() if step.quantizes)
"""The steps that turn matmuls to INT8; a plan has at most one."""

PRUNERS = tuple(name for name, step in STEPS.items() if step.prunes)
"""The steps that make another, smaller model first."""

TRAINED = tuple(name for name, step in STEPS.items() if step.losses)
"""The steps that train."""


@dataclass(frozen=True)
class Plan:
    """What one strategy does, in order. Made by `parse`."""

    steps: tuple[str, ...]

    @property
    def name(self) -> str:
        """The steps joined in order: equal plans have equal names, however they were written."""
        return "+".join(self.steps)

    @property
    def needs(self) -> str:
        """The rows that the plan cannot do without: one of `DEMANDS`."""
        return max((STEPS[step].needs for step in self.steps), key=DEMANDS.index)

    @property
    def quantizer(self) -> str | None:
        """`qat`, `ptq`, `dynamic`, or None where matmuls stay float."""
        return next((step for step in self.steps if step in QUANTIZERS), None)

    @property
    def embeddings(self) -> bool:
        """Whether the embedding tables become INT8."""
        return EMBEDDINGS in self.steps

    @property
    def calibrates(self) -> bool:
        """Whether ranges are taken from rows before the model is run."""
        return any(STEPS[step].calibrates for step in self.steps)

    @property
    def trained(self) -> tuple[str, ...]:
        """The steps that train."""
        return tuple(step for step in self.steps if step in TRAINED)

    @property
    def reads_train_rows(self) -> bool:
        """Whether the plan cannot do without training rows."""
        return any(STEPS[step].reads_train_rows for step in self.steps)

    @property
    def without_train_rows(self) -> tuple[str, ...]:
        """The steps that are left where there are no training rows."""
        return tuple(step for step in self.steps if not STEPS[step].reads_train_rows)

    @property
    def pruning(self) -> tuple[str, ...]:
        """The steps that make the model which the others start from: plans with equal ones share it.

        >>> parse("ptq+dynabert").pruning, parse("ptq").pruning
        (('dynabert',), ())
        """
        return tuple(step for step in self.steps if step in PRUNERS)

    def with_quantizer(self, quantizer: str) -> Plan:
        """The same plan with another quantizer in the place of its own.

        >>> parse("ptq+embeddings").with_quantizer("dynamic").name
        'dynamic+embeddings'
        """
        return Plan(tuple(quantizer if step in QUANTIZERS else step for step in self.steps))

    def candidate(self, algo: str | None = None, rows: str | None = None, *, width: str | None = None) -> str:
        """Folder name of what the plan makes: for `ptq` with the calibrator and its rows, for what is pruned the width.

        `width`: that of `dynabert`, or the speed-up that `prune` was asked for.

        >>> parse("ptq+embeddings").candidate("mse", "4_1"), parse("dynamic").candidate()
        ('mse4_1-embeddings', 'dynamic')
        >>> parse("dynabert+ptq+embeddings").candidate("mse", "4_1", width="width_mult_0.75")
        'width_mult_0.75-mse4_1-embeddings'
        >>> parse("prune+dynabert+ptq").candidate("mse", "4_1", width="speedup_6")
        'speedup_6-dynabert-mse4_1'
        """
        if self.quantizer == PTQ and (algo is None or rows is None):
            raise ValueError("A candidate of ptq is named after its calibrator and its rows.")
        shaped = next((step for step in (PRUNE, DYNABERT) if step in self.steps), None)
        if shaped and width is None:
            raise ValueError(f"A candidate of {shaped} is named after its width.")
        instead = {PTQ: f"{algo}{rows}", shaped: str(width)}
        return "-".join(instead.get(step, step) for step in self.steps)


def parse(text: str) -> Plan:
    """Read one strategy: steps in any order, between them `+`, `,` or blanks.

    >>> parse("embeddings, ptq").name
    'ptq+embeddings'
    >>> parse("dynabert+ptq").steps, parse("dynabert+ptq").needs
    (('dynabert', 'ptq'), 'train and eval rows')
    >>> parse("ptq+embedings")
    Traceback (most recent call last):
    tersely.errors.UserError: The strategy 'ptq+embedings' has an unknown step 'embedings'. Did you mean 'embeddings'?
    """
    if not isinstance(text, str):
        raise UserError(f"A strategy must be a text such as 'ptq+embeddings'. Got {text!r}.")
    words = [word for word in re.split(r"[+,\s]+", text) if word]
    if not words:
        raise UserError("The strategy is empty.", hint=f"Known steps: {', '.join(STEPS)}.")
    for word in words:
        if word not in STEPS:
            hint = nearest(word.lower(), STEPS)
            raise UserError(f"The strategy '{text}' has an unknown step '{word}'.", hint=hint)
    ordered = Plan(tuple(step for step in STEPS if step in words))
    _refuse_contradiction(ordered, text)
    for word in words:
        if words.count(word) > 1:
            raise UserError(f"The strategy '{text}' names '{word}' twice.", hint=f"Write '{ordered.name}'.")
    return ordered


def parse_all(texts: str | Iterable[str]) -> tuple[Plan, ...]:
    """Read several strategies; equal ones are kept once.

    >>> [plan.name for plan in parse_all(["ptq+embeddings", "dynamic", "embeddings+ptq"])]
    ['ptq+embeddings', 'dynamic']
    """
    texts = [texts] if isinstance(texts, str) else list(texts)
    if not texts:
        raise UserError("There is no strategy.", hint=f"Name one of the steps {', '.join(STEPS)}.")
    return tuple(dict.fromkeys(parse(text) for text in texts))


def check_rows(
    plans: Sequence[Plan], *, train: bool, evaluation: bool, unlabelled: bool = False, by_labels: Collection[Plan] = ()
) -> None:
    """Refuse plans that need rows which were not given.

    `unlabelled`: whether there are rows that do for training rows, but for the plans that learn `by_labels`.

    >>> check_rows([parse("ptq")], train=False, evaluation=False)
    Traceback (most recent call last):
    tersely.errors.UserError: The strategy 'ptq' needs rows to calibrate on. Name them with train_file or eval_file.
    """
    for plan in plans:
        if plan.needs == "some rows" and not (train or unlabelled or evaluation):
            hint = "Name them with --train_file or --eval_file."
            raise UserError(f"The strategy '{plan.name}' needs rows to calibrate on.", hint=hint)
        if lacks_train_rows(plan, train=train, unlabelled=unlabelled, by_labels=by_labels):
            if unlabelled:
                what = f"The strategy '{plan.name}' learns from labels, and needs training rows that have them."
                alone = "learn from the teacher alone: --importance teacher --label_loss 0"
                raise UserError(what, hint=f"Name them with --train_file, or {alone}.")
            hint = f"Name them with --train_file{_without(plan, evaluation)}."
            raise UserError(f"The strategy '{plan.name}' needs training rows.", hint=hint)
        if plan.needs == "train and eval rows" and not evaluation:
            raise UserError(f"The strategy '{plan.name}' needs eval rows.", hint="Name them with --eval_file.")


def lacks_train_rows(plan: Plan, *, train: bool, unlabelled: bool = False, by_labels: Collection[Plan] = ()) -> bool:
    """Whether a plan needs training rows that were not given; see `check_rows`."""
    return plan.reads_train_rows and not train and (not unlabelled or plan in by_labels)


def _without(plan: Plan, rows: bool) -> str:
    """What else could be asked for without training rows, as the end of a sentence."""
    rest = Plan(plan.without_train_rows)
    if not rest.steps or (rest.needs == "some rows" and not rows):
        return ""
    return f", or write --strategy {rest.name}"


def _refuse_contradiction(plan: Plan, text: str) -> None:
    several = [step for step in plan.steps if step in QUANTIZERS]
    if len(several) < 2:
        return
    valid = ["+".join(step for step in plan.steps if step not in several or step == quantizer) for quantizer in several]
    choices, flags = " or ".join(f"'{name}'" for name in valid), " ".join(f"--strategy {name}" for name in valid)
    raise UserError(
        f"The strategy '{text}' holds {' and '.join(several)}, of which a strategy has one at most.",
        hint=f"Write {choices}, or several strategies: {flags}",
    )
