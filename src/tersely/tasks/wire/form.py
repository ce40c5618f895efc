"""`Wire`: a task's requests and answers as a server's clients see them. Plain Python; no server is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ..encoder import Encoder
from .schemas import Schema

Parameters = Mapping[str, Any]
"""What a request sets, by name, checked against the schemas; what is not there was not set."""

Sample = Mapping[str, str]
"""A row to try a model with: texts by the names of the inputs."""


@dataclass(frozen=True)
class Parameter:
    """A parameter that a request may set.

    `setting`: the field of the task that takes its value (None: it only shapes the result). `of_tensors`: whether it
    means something in the Open Inference Protocol, where every element is a text and every score is an output.
    """

    schema: Schema
    setting: str | None = None
    of_tensors: bool = True


class Output(NamedTuple):
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
    def parameters(self) -> Mapping[str, Parameter]:
        """Parameters beside those that every task has."""

    @property
    def result_schema(self) -> Schema:
        """The schema of `result`."""

    @property
    def outputs(self) -> Mapping[str, Output]:
        """The tensors by name."""

    def shortest(self, encoder: Encoder) -> int:
        """The fewest tokens that hold the special tokens and a token of each text."""

    def result(self, examples: Sequence[Any], answers: Sequence[Any], parameters: Parameters) -> dict[str, Any]:
        """Answers in SimpleServing's form."""

    def tensors(self, answers: Sequence[Any], parameters: Parameters) -> Mapping[str, list[Any]]:
        """Answers as the values of every output."""

    def samples(self, language: str, pairs: bool | None) -> Sequence[Sample]:
        """Rows to try a model with, in `en` or `zh`; `pairs`: only pairs of texts, or only single ones."""
