"""Scores of the user's own: `custom_evaluate` and `compute_metrics`, asked of every engine that will run."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import EvalPrediction

from ..errors import UserError
from .live_rows import LiveExample

FILL = -100
"""What transformers' Trainer fills predictions and labels of unequal lengths up with."""


def evaluator(function: Any, trainer: Any, name: str = "custom_evaluate") -> Callable[[Any, Any], Any]:
    """`f(model, dataloader)` of what was given: that, or `f(trainer, model, dataloader)`, told by its parameters."""
    if not callable(function):
        raise UserError(f"'{name}' must be a function. Got {type(function).__name__}.")
    parameters = list(inspect.signature(function).parameters.values())
    plain = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    needed = [one for one in plain if one.default is one.empty]
    several = any(one.kind is one.VAR_POSITIONAL for one in parameters)
    if len(needed) == 2:
        return lambda model, loader: function(model, loader)
    if len(needed) == 3 or (several and len(needed) < 3):
        return lambda model, loader: function(trainer, model, loader)
    shown = ", ".join(one.name for one in plain) or "nothing"
    what = f"'{name}' must take (model, dataloader) or (trainer, model, dataloader). Got: {shown}."
    raise UserError(what)


@dataclass(frozen=True)
class Evaluated:
    """Calls the user's function with a module over the engine and a loader of the rows that score."""

    metric: str
    call: Callable[[Any, Any], Any]
    hand: Callable[[Any], Any]
    load: Callable[[Sequence[int]], Iterable[Any]]

    def __call__(self, engine: Any, examples: Sequence[LiveExample], logits: Sequence[Any]) -> Mapping[str, float]:
        """One number."""
        value = self.call(self.hand(engine), self.load([example.number for example in examples]))
        return {self.metric: number(value, self.metric)}


@dataclass(frozen=True)
class Computed:
    """Hands logits and labels to `compute_metrics` as transformers' Trainer does.

    `labels`: their names; `several`: the model has several outputs, which lie side by side in the last axis.
    """

    metric: str
    compute: Callable[[EvalPrediction], Mapping[str, Any]]
    labels: tuple[str, ...]
    several: bool
    preprocess: Callable[[Any, Any], Any] | None = None

    def __call__(self, engine: Any, examples: Sequence[LiveExample], logits: Sequence[Any]) -> Mapping[str, float]:
        """All numbers that it gives; the one that chooses must be among them."""
        found = self.numbers(examples, logits)
        if self.metric not in found:
            raise UserError(f"'compute_metrics' gives no '{self.metric}' this time. It gives: {', '.join(found)}.")
        return found

    def numbers(self, examples: Sequence[LiveExample], logits: Sequence[Any]) -> dict[str, float]:
        """What it gives for these rows."""
        predictions: Any = filled(logits)
        if self.several:
            predictions = tuple(np.moveaxis(predictions, -1, 0))
        there = [name for name in self.labels if name in examples[0].targets]
        targets = tuple(filled([example.targets[name] for example in examples]) for name in there)
        labels: Any = None if not targets else targets[0] if len(targets) == 1 else targets
        if self.preprocess is not None:
            predictions = _each(self.preprocess(_each(predictions, torch.from_numpy), _each(labels, torch.from_numpy)))
        try:
            found = self.compute(EvalPrediction(predictions=predictions, label_ids=labels))
        except Exception as error:  # whatever a function of the user's may raise
            what = f"'compute_metrics' fails on {len(examples)} rows: {type(error).__name__}: {error}"
            raise UserError(
                what, hint="It is given logits and labels as in evaluate(), of some of the rows."
            ) from error
        numbers = _numbers(found) if isinstance(found, Mapping) else {}
        if not numbers:
            raise UserError(f"'compute_metrics' must give numbers by name. Got {found!r}.")
        return numbers


def filled(rows: Sequence[Any]) -> NDArray[Any]:
    """Rows as one array, filled up along their first axis where lengths differ."""
    arrays = [np.asarray(row) for row in rows]
    if arrays[0].ndim == 0:
        return np.stack(arrays)
    longest = max(len(array) for array in arrays)
    wide = [[(0, longest - len(one)), *[(0, 0)] * (one.ndim - 1)] for one in arrays]
    return np.stack([np.pad(one, pad, constant_values=FILL) for one, pad in zip(arrays, wide, strict=True)])


def number(value: Any, name: str) -> float:
    """What a user's function gave, if it is one number."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        shown = type(value).__name__
        hint = "Return the one number that is to be large (or small: greater_is_better=False)."
        raise UserError(f"'{name}' must return a number. Got {shown}.", hint=hint) from None
    if not math.isfinite(found):
        raise UserError(f"'{name}' returned {found}, by which nothing can be chosen.")
    return found


def _numbers(found: Mapping[str, Any]) -> dict[str, float]:
    kept = {name: value for name, value in found.items() if isinstance(value, (int, float, np.number))}
    return {str(name): float(value) for name, value in kept.items() if math.isfinite(value)}


def _each(value: Any, change: Callable[[Any], Any] | None = None) -> Any:
    """Change an array or each of a tuple; tensors to arrays unless told otherwise."""
    if value is None:
        return None
    if isinstance(value, tuple):
        return tuple(_each(one, change) for one in value)
    if change is not None:
        return change(np.ascontiguousarray(value))
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value
