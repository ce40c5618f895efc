"""`HandedModel`: what an evaluator of the user's is given, a module to call with tensors, over any engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch
from torch import nn

from ..engines.engine import Engine
from ..errors import UserError

MASK = "attention_mask"


class OFA(nn.Module):  # type: ignore[misc]  # torch is Any to mypy
    """What the reference wrapped its students in. Here no model is: `isinstance(model, OFA)` is always False."""


@final
class HandedModel(nn.Module):  # type: ignore[misc]
    """Takes what the model's forward takes, positions too, and gives its logits, or a tuple of several.

    Labels and switches of transformers are passed over. A missing `attention_mask` is rebuilt from the padding id, as
    Paddle's models do themselves; one that comes as a pair [mask, head mask] counts by its first part.
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

    def forward(self, *given: Any, **named: Any) -> Any:
        """Run the engine."""
        if len(given) > len(self._order):
            raise UserError(f"The model takes {len(self._order)} inputs. Got {len(given)}.")
        inputs = {**dict(zip(self._order, given, strict=False)), **named}
        feed = {name: inputs[name] for name in self._engine.inputs if inputs.get(name) is not None}
        arrays = {name: _array(value) for name, value in feed.items()}
        arrays = {name: array for name, array in arrays.items() if array is not None}
        ids = arrays.get("input_ids")
        if ids is not None:
            arrays.setdefault(MASK, (ids != self._pad_id).astype(np.int64))
            arrays.setdefault("token_type_ids", np.zeros_like(ids))
        outputs = tuple(torch.from_numpy(np.array(output)) for output in self._engine.run(arrays))
        return outputs[0] if len(outputs) == 1 else outputs


def _array(value: Any) -> Any:
    if isinstance(value, (list, tuple)) and any(part is None or hasattr(part, "detach") for part in value):
        value = value[0]  # [mask, head mask]
    if value is None:
        return None
    array = value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)
    if array.dtype.kind == "f":  # a mask that is added to scores: 0 at real positions, far below elsewhere
        array = (array == 0 if array.min(initial=0) < 0 else array != 0).astype(np.int64)
    return array.reshape(array.shape[0], array.shape[-1]) if array.ndim == 4 else array
