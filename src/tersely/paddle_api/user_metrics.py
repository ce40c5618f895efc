"""Scores of the user's own, computed on every engine that will run: `custom_evaluate`, else `compute_metrics`."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import EvalPrediction

from ..engines.engine import Engine
from ..engines.torch import TorchEngine
from ..errors import UserError
from ..runtime.predictor import run
from ..tasks.metrics import Metric
from ..training.batches import stacked
from .datasets import TrainerRow
from .user_loss import alone

EVALUATE = "custom_evaluate"
FILL = -100
"""What transformers' Trainer fills predictions and labels of unequal lengths up with."""


def evaluator(function: Any, trainer: Any) -> Callable[[Any, Any], Any]:
    """`f(model, dataloader)` of a function of these, or of (trainer, model, dataloader), known by its parameters."""
    if not callable(function):
        raise UserError(f"'{EVALUATE}' must be a function. Got {type(function).__name__}.")
    parameters = list(inspect.signature(function).parameters.values())
    plain = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    needed = [each for each in plain if each.default is each.empty]
    several = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    if len(needed) == 2:
        return lambda model, loader: function(model, loader)
    if len(needed) == 3 or (several and len(needed) < 3):
        return lambda model, loader: function(trainer, model, loader)
    shown = ", ".join(each.name for each in plain) or "nothing"
    raise UserError(f"'{EVALUATE}' must take (model, dataloader) or (trainer, model, dataloader). Got: {shown}.")


def metric_of_evaluate(
    evaluate: Callable[[Any, Any], Any],
    load: Callable[[Sequence[int]], Any],
    module: Callable[[Engine], nn.Module],
    greater_is_better: bool,
) -> Metric:
    """Calls the user's function with a module over the engine and a loader of the rows that score."""

    def of_system(engine: Any, examples: Sequence[TrainerRow], logits: Sequence[Any]) -> Mapping[str, float]:
        return {EVALUATE: number(evaluate(module(engine), load([row.number for row in examples])), EVALUATE)}

    return Metric.without_statistics(EVALUATE, of_system, greater_is_better)


@dataclass(frozen=True)
class ComputedMetrics:
    """Hands logits and labels to `compute_metrics` as transformers' Trainer does.

    `labels`: their names; `several`: the model has several outputs, which lie side by side in the last axis.
    """

    metric: str
    compute: Callable[[EvalPrediction], Mapping[str, Any]]
    labels: tuple[str, ...]
    several: bool
    preprocess: Callable[[Any, Any], Any] | None = None

    def __call__(self, engine: Any, examples: Sequence[TrainerRow], logits: Sequence[Any]) -> Mapping[str, float]:
        """All numbers that it gives; the one that chooses must be among them."""
        found = self.numbers(examples, logits)
        if self.metric not in found:
            raise UserError(f"'compute_metrics' gives no '{self.metric}' this time. It gives: {', '.join(found)}.")
        return found

    def numbers(self, examples: Sequence[TrainerRow], logits: Sequence[Any]) -> dict[str, float]:
        """What it gives for these rows."""
        predictions: Any = filled(logits)
        if self.several:
            predictions = tuple(np.moveaxis(predictions, -1, 0))
        there = [name for name in self.labels if name in examples[0].targets]
        labels = alone(tuple(filled([row.targets[name] for row in examples]) for name in there)) if there else None
        if self.preprocess is not None:
            predictions = _each(self.preprocess(_each(predictions, _tensor), _each(labels, _tensor)), _array)
        try:
            found = self.compute(EvalPrediction(predictions=predictions, label_ids=labels))
        except Exception as error:  # whatever a function of the user's may raise
            what = f"'compute_metrics' fails on {len(examples)} rows: {type(error).__name__}: {error}"
            hint = "It is given logits and labels as in evaluate(), of some of the rows."
            raise UserError(what, hint=hint) from error
        values = found.items() if isinstance(found, Mapping) else ()
        kept = {str(name): float(value) for name, value in values if isinstance(value, (int, float, np.number))}
        numbers = {name: value for name, value in kept.items() if math.isfinite(value)}
        if not numbers:
            raise UserError(f"'compute_metrics' must give numbers by name. Got {found!r}.")
        return numbers

    def choosing(
        self, examples: Sequence[TrainerRow], template: nn.Module, pad_id: int, wanted: str | None, usual: str
    ) -> ComputedMetrics:
        """The same with the number that chooses, seen on a few rows: the one wanted, the task's own, or the first."""
        features = [feature for index, row in enumerate(examples) for feature in row.features(index)]
        found = self.numbers(examples, run(TorchEngine(template), features, pad_id))
        chosen = wanted or (usual if usual in found else next(iter(found)))
        if chosen not in found:
            what = f"'compute_metrics' gives no '{chosen}'. It gives: {', '.join(found)}."
            raise UserError(what, hint="Name the one that chooses with 'metric_for_best_model' of the arguments.")
        return replace(self, metric=chosen)


class OFA(nn.Module):  # type: ignore[misc]  # torch is Any to mypy
    """What PaddleNLP wrapped its students in. Here no model is: `isinstance(model, OFA)` is always False."""


@final
class EngineModule(nn.Module):  # type: ignore[misc]
    """What `custom_evaluate` is given, over any engine: a module to be called as the model itself.

    It takes what the model's forward takes, positions too, and gives its logits, or a tuple of several. Labels and
    switches of transformers are passed over. A missing `attention_mask` is rebuilt from the padding id, as Paddle's
    models do themselves; one that comes as a pair [mask, head mask] counts by its first part.
    """

    def __init__(self, engine: Engine, order: Sequence[str], pad_id: int, config: Any = None) -> None:
        super().__init__()
        self._engine, self._order, self._pad_id, self.config = engine, tuple(order), pad_id, config
        # So that `next(model.parameters()).device` has an answer.
        self.nothing = nn.Parameter(torch.empty(0), requires_grad=False)
        self.training = False

    @property
    def device(self) -> torch.device:
        """Where it wants its tensors; others are fetched."""
        return torch.device("cpu")

    def forward(self, *values: Any, **named: Any) -> Any:
        """Run the engine."""
        if len(values) > len(self._order):
            raise UserError(f"The model takes {len(self._order)} inputs. Got {len(values)}.")
        inputs = {**dict(zip(self._order, values, strict=False)), **named}
        arrays = {name: _input(inputs.get(name)) for name in self._engine.inputs}
        arrays = {name: array for name, array in arrays.items() if array is not None}
        ids = arrays.get("input_ids")
        if ids is not None:
            arrays.setdefault("attention_mask", (ids != self._pad_id).astype(np.int64))
            arrays.setdefault("token_type_ids", np.zeros_like(ids))
        return alone(tuple(torch.from_numpy(np.array(output)) for output in self._engine.run(arrays)))


def filled(rows: Sequence[Any]) -> NDArray[Any]:
    """Rows as one array, filled up along their first axis where lengths differ."""
    arrays = [np.asarray(row) for row in rows]
    return stacked(arrays, FILL) if arrays[0].ndim else np.stack(arrays)


def number(value: Any, name: str) -> float:
    """What a user's function gave, if it is one number."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        hint = "Return the one number that is to be large (or small: greater_is_better=False)."
        raise UserError(f"'{name}' must return a number. Got {type(value).__name__}.", hint=hint) from None
    if not math.isfinite(found):
        raise UserError(f"'{name}' returned {found}, by which nothing can be chosen.")
    return found


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    """Change an array or each of a tuple."""
    if isinstance(value, tuple):
        return tuple(_each(part, change) for part in value)
    return None if value is None else change(value)


def _tensor(array: Any) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))


def _array(value: Any) -> Any:
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


def _input(value: Any) -> Any:
    if isinstance(value, (list, tuple)) and any(part is None or hasattr(part, "detach") for part in value):
        value = value[0]  # [mask, head mask]
    if value is None:
        return None
    array = np.asarray(_array(value))
    if array.dtype.kind == "f":  # a mask that is added to scores: 0 at real positions, far below elsewhere
        array = (array == 0 if array.min(initial=0) < 0 else array != 0).astype(np.int64)
    return array.reshape(array.shape[0], array.shape[-1]) if array.ndim == 4 else array
