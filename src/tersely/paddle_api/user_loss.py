"""The user's loss where compression needs one: by the names of its labels, or in PaddleNLP's older form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from ..errors import UserError


class UserLoss:
    """Calls `criterion(logits, labels)`, with tuples where there are several of either.

    `zero_padding`: labels of padding, which were taken off with it, are 0 as PaddleNLP's collators have them, and not
    what a token classifier passes over.
    """

    def __init__(self, call: Callable[[Any, Any], Any], labels: tuple[str, ...], *, zero_padding: bool = False) -> None:
        self._call, self._labels, self._zero_padding = call, labels, zero_padding
        _take_name(self, call)

    def __call__(self, logits: Any, labels: Any) -> torch.Tensor:
        """The mean loss."""
        return loss_of(self._call, logits, labels)

    def of_batch(self, outputs: tuple[torch.Tensor, ...], batch: Mapping[str, Any]) -> torch.Tensor:
        """The mean loss of what the model gave for a batch, labels included."""
        labels = tuple(self._padded(batch[name], batch) for name in self._labels)
        return self(alone(outputs), alone(labels))

    def _padded(self, labels: torch.Tensor, batch: Mapping[str, Any]) -> torch.Tensor:
        mask = batch.get("attention_mask")
        if not self._zero_padding or mask is None or labels.shape[:2] != mask.shape:
            return labels
        return labels.masked_fill((mask == 0).view(*mask.shape, *[1] * (labels.ndim - 2)), 0)


class OlderLoss:
    """`custom_dynabert_calc_loss(loss_fct, model, batch, head_mask)`: the model it calls gives this batch's logits."""

    def __init__(self, call: Callable[..., Any], criterion: Any) -> None:
        self._call, self._criterion = call, criterion
        _take_name(self, call)

    def __call__(self, logits: Any, labels: Any) -> torch.Tensor:
        """Without the batch there is nothing to call it with."""
        raise NotImplementedError

    def of_batch(self, outputs: tuple[torch.Tensor, ...], batch: Mapping[str, Any]) -> torch.Tensor:
        """The mean loss of a batch; the head mask is of ones, as the real one is inside the model."""
        loss = self._call(self._criterion, lambda *_, **__: alone(outputs), dict(batch), torch.ones(1))
        return _mean(loss, "custom_dynabert_calc_loss")


def loss_of(criterion: Callable[[Any, Any], Any], logits: Any, labels: Any) -> torch.Tensor:
    """The mean loss. Torch's own cross-entropy takes labels along the last axis here, and pairs, as Paddle's does.

    >>> tags = torch.randn(2, 5, 3), torch.ones(2, 5, dtype=torch.long)
    >>> loss_of(nn.CrossEntropyLoss(), *tags).ndim
    0
    """
    if isinstance(criterion, nn.CrossEntropyLoss):
        if isinstance(logits, tuple):
            return torch.stack([loss_of(criterion, *pair) for pair in zip(logits, labels, strict=True)]).mean()
        if logits.ndim == 3 and labels.ndim == 2:
            logits, labels = logits.flatten(0, 1), labels.flatten()
    return _mean(criterion(logits, labels), "criterion")


def alone(values: tuple[Any, ...]) -> Any:
    """The only value; the tuple where there are several.

    >>> alone((1,)), alone((1, 2))
    (1, (1, 2))
    """
    return values if len(values) > 1 else values[0]


def _mean(loss: Any, name: str) -> torch.Tensor:
    if not isinstance(loss, torch.Tensor):
        raise UserError(f"The '{name}' must give a tensor, the loss of a batch. Got {type(loss).__name__}.")
    return loss.mean()


def _take_name(loss: Any, call: Any) -> None:
    """Go by the user's own name in records: another loss is another training."""
    loss.__qualname__ = getattr(call, "__qualname__", type(call).__qualname__)
    loss.__module__ = getattr(call, "__module__", "")
