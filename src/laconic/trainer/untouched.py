"""Global state that a run changes on the way: as it was afterwards, and while functions of the user's run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from accelerate.state import AcceleratorState, GradientState, PartialState

from ..train.isolated import isolated

States = dict[Any, dict[str, Any]]


def states() -> States:
    """What accelerate's singletons hold: making other training arguments begins them anew."""
    return {kind: dict(kind._shared_state) for kind in (PartialState, AcceleratorState, GradientState)}


@contextmanager
def restored(those: States) -> Iterator[None]:
    """Have the singletons as they were then, for a while."""
    now = states()
    _put(those)
    try:
        yield
    finally:
        _put(now)


@contextmanager
def untouched() -> Iterator[None]:
    """Leave torch's and accelerate's global state as it was, random numbers, logs and threads included."""
    before, dtype = states(), torch.get_default_dtype()
    try:
        with isolated():
            yield
    finally:
        torch.set_default_dtype(dtype)
        _put(before)


def _put(those: States) -> None:
    for kind, content in those.items():
        kind._shared_state.clear()
        kind._shared_state.update(content)
