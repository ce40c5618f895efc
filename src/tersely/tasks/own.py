"""A model of the user's own: what goes in and what comes out is known, what it means is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..data.rows import Rows
from ..errors import UserError
from .encoder import Encoder, Feature, Logits
from .metrics import Metric
from .task import Columns, Facts, InputError, Loss
from .wire import Wire


@dataclass(frozen=True)
class OwnInputs:
    """What a row gives the model, by the names of its inputs, without padding."""

    inputs: Mapping[str, NDArray[Any]]
    gold: None = None


@dataclass(frozen=True)
class OwnOutputs:
    """What the model gave for a row: its outputs by name, or the one under `logits`."""

    outputs: Mapping[str, NDArray[np.float32]]

    def as_json(self) -> dict[str, Any]:
        """Give plain types."""
        return {name: array.tolist() for name, array in self.outputs.items()}

    def in_words(self) -> str:
        """Nothing can be said of them."""
        return "other outputs"


@dataclass(frozen=True)
class Own:
    """Inputs in, outputs out. `model_class`: whose forward it was; `inputs` and `outputs` by name.

    `labels_last`: the last axis of the one output is over labels, of which the largest counts; else each number stands
    for itself, and is a yes above the `threshold`.
    """

    name: ClassVar[str] = "own"
    loss: ClassVar[Loss] = "own"
    facts: ClassVar[Facts] = Facts(
        call='model.predict([{"input_ids": [101, 7592, 102]}])',
        gives="the model's outputs as they are",
        answers_for="own",
        note="This is a model of its owner's, a `{model_class}`: inputs and outputs are as its own forward has them, "
        "and what they mean is not part of the artifact.",
        not_served="The artifact is a model of its owner's: what its numbers mean is not known, so that it is not "
        "served.",
    )

    model_class: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    labels_last: bool = True
    threshold: float = 0.0
    max_seq_length: int = 128
    metric: str = "custom_evaluate"
    greater_is_better: bool = True

    @property
    def labels(self) -> tuple[str, ...]:
        """There are none."""
        return ()

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """Only the user's own, which came with the model and is not in the artifact."""
        return {self.metric: Metric.without_statistics(self.metric, _refuse, self.greater_is_better)}

    @property
    def centred_axis(self) -> int | None:
        """A common shift changes no largest label; numbers that stand for themselves it does change."""
        return -1 if self.labels_last else None

    @property
    def answer_columns(self) -> Mapping[str, Any]:
        """Numbers in a shape that only the model's owner knows."""
        return dict.fromkeys(self.outputs)

    @property
    def wire(self) -> Wire:
        """Refuse: what the numbers mean is not known."""
        raise UserError(self.facts.not_served)

    def read(self, rows: Rows, columns: Columns, labelled: bool) -> list[Any]:
        """Refuse: texts and labels mean what the model's owner says."""
        what = f"The artifact is a model of its owner's ({self.model_class}): rows of a file mean nothing to it."
        raise UserError(what, where=rows.source, hint=f"Feed it {', '.join(self.inputs)}: see its README.md.")

    def examples(self, inputs: Any) -> list[OwnInputs]:
        """Take mappings of input names to one row's numbers."""
        found = []
        for index, item in enumerate(inputs):
            if not isinstance(item, Mapping) or "input_ids" not in item:
                problem = f"must be a mapping with 'input_ids' and the like. Got {type(item).__name__}."
                raise InputError(index, problem, hint=f"The model takes {', '.join(self.inputs)}.")
            found.append(OwnInputs({name: np.asarray(item[name]) for name in self.inputs if name in item}))
        return found

    def features(self, examples: Sequence[Any], encoder: Encoder) -> list[Feature]:
        """One each, as it is."""
        return [feature_of(index, example.inputs) for index, example in enumerate(examples)]

    def targets(self, example: Any, feature: Feature) -> Mapping[str, Any]:
        """None are known."""
        return {}

    def decode(
        self, examples: Sequence[Any], features: Sequence[Feature], logits: Sequence[Logits]
    ) -> list[OwnOutputs]:
        """The outputs, each under its name."""
        if len(self.outputs) == 1:
            return [OwnOutputs({self.outputs[0]: row}) for row in logits]
        return [OwnOutputs({name: row[..., i] for i, name in enumerate(self.outputs)}) for row in logits]

    def statistics(self, metric: str, examples: Sequence[Any], answers: Sequence[Any]) -> NDArray[np.float64]:
        """Refuse: see `metrics`."""
        _refuse()

    def rightness(self, examples: Sequence[Any], answers: Sequence[Any]) -> NDArray[np.float64]:
        """Refuse: what is right, its owner knows."""
        _refuse()

    def agreement(self, answers: Sequence[OwnOutputs], others: Sequence[OwnOutputs]) -> NDArray[np.float64]:
        """Equal labels, or numbers on the same side of the threshold, of all there are."""
        pairs = [(self._parts(answer), self._parts(other)) for answer, other in zip(answers, others, strict=True)]
        return np.array([[float((parts == others).sum()), float(parts.size)] for parts, others in pairs])

    def _parts(self, answer: OwnOutputs) -> NDArray[Any]:
        if self.labels_last:
            (output,) = answer.outputs.values()
            return np.ravel(output.argmax(-1))
        return np.concatenate([np.ravel(output > self.threshold) for output in answer.outputs.values()])


def feature_of(index: int, inputs: Mapping[str, NDArray[Any]]) -> Feature:
    """A feature of inputs by name; a mask of ones alone says nothing."""
    ids = np.asarray(inputs["input_ids"], np.int64)
    types = np.asarray(inputs.get("token_type_ids", np.zeros(len(ids))), np.int64)
    more = {name: array for name, array in inputs.items() if name not in ("input_ids", "token_type_ids")}
    if "attention_mask" in more and np.asarray(more["attention_mask"]).all():
        del more["attention_mask"]
    return Feature(index, ids, types, more=more)


def _refuse(*_: Any) -> NoReturn:
    raise UserError("The metric of a model of its owner's is not in the artifact.", hint="Score it with your own.")
