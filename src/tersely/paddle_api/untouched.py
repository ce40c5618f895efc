"""Global state that a run changes on the way: as it was afterwards, and while functions of the user's run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..training.isolated import States, isolated, put_states, states


@contextmanager
def restored(those: States) -> Iterator[None]:
    """Have accelerate's singletons as they were then, for a while."""
    now = states()
    put_states(those)
    try:
        yield
    finally:
        put_states(now)


@contextmanager
def untouched() -> Iterator[None]:
    """Leave torch's and accelerate's global state as it was, random numbers, logs and threads included."""
    dtype = torch.get_default_dtype()
    try:
        with isolated():
            yield
    finally:
        torch.set_default_dtype(dtype)
