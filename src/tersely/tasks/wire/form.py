"""`Wire`: a task's requests and answers as a server's clients see them. Plain Python; no server is needed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ..encoder import Encoder

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
PLACE: Schema = {"type": "integer", "minimum": 0}
FLAG: Schema = {"type": "boolean"}

Parameters = Mapping[str, Any]
"""What a request sets, by name, checked against the schemas; what is not there was not set."""

Sample = Mapping[str, str]
"""A row to try a model with: texts by the names of the inputs."""


@dataclass(frozen=True)
class RequestParameter:
    """A parameter that a request may set.

    `setting`: the field of the task that takes its value (None: it only shapes the result). `of_tensors`: whether it
    means something in the Open Inference Protocol, where every element is a text and every score is an output.
    """

    schema: Schema
    setting: str | None = None
    of_tensors: bool = True


class OutputTensor(NamedTuple):
    """A tensor of the Open Inference Protocol: its datatype, and the values of a row (None: one, without an axis).

    BYTES that are no plain label are JSON.
    """

    datatype: str
    width: int | None = None


class Wire(Protocol):
    """What a task must say to be served. Rows are what `Task.examples` takes, a mapping by the names of `Facts.inputs`.

    SimpleServing's result is an object with one entry a row in every list; tensors are lists of plain values in
    row-major order.
    """

    @property
    def kind(self) -> str:
        """The kind of answer, for people."""

    @property
    def parameters(self) -> Mapping[str, RequestParameter]:
        """Parameters beside those that every task has."""

    @property
    def result_schema(self) -> Schema:
        """The schema of `result`."""

    @property
    def outputs(self) -> Mapping[str, OutputTensor]:
        """The tensors by name."""

    def shortest(self, encoder: Encoder) -> int:
        """The fewest tokens that hold the special tokens and a token of each text."""

    def result(self, examples: Sequence[Any], answers: Sequence[Any], parameters: Parameters) -> dict[str, Any]:
        """Answers in SimpleServing's form."""

    def tensors(self, answers: Sequence[Any], parameters: Parameters) -> Mapping[str, list[Any]]:
        """Answers as the values of every output."""

    def samples(self, language: str, pairs: bool | None) -> Sequence[Sample]:
        """Rows to try a model with, in `en` or `zh`; `pairs`: only pairs of texts, or only single ones."""


def closed(properties: Mapping[str, Any], required: Sequence[str] | None = None) -> Schema:
    """An object that has these entries and no others; all are required unless said.

    >>> closed({"ready": {"type": "boolean"}})["required"]
    ['ready']
    """
    needed = list(properties) if required is None else list(required)
    return {"type": "object", "properties": dict(properties), "required": needed, "additionalProperties": False}


def many(schema: Schema) -> Schema:
    """A list of these."""
    return {"type": "array", "items": schema}


def json_texts(values: Sequence[Any]) -> list[str]:
    """Each value as JSON, for a tensor of BYTES."""
    return [json.dumps(value, ensure_ascii=False) for value in values]
