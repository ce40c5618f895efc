"""Training draws random numbers, switches logs off and begins accelerate's state anew; afterwards all is as it was."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from accelerate.state import AcceleratorState, GradientState, PartialState
from transformers.utils import logging as transformers_logging

States = dict[Any, dict[str, Any]]
ENVIRONMENT = ("ACCELERATE_MIXED_PRECISION", "ACCELERATE_USE_CPU")


@contextmanager
def isolated() -> Iterator[None]:
    """Restore the generators of Python, NumPy and torch, the thread count, what accelerate holds, and logs and bars."""
    state, legacy, python = torch.get_rng_state(), np.random.get_state(), random.getstate()
    threads, verbosity = torch.get_num_threads(), transformers_logging.get_verbosity()
    bars = transformers_logging.is_progress_bar_enabled()
    accelerate_level = logging.getLogger("accelerate").level
    environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    singletons = states()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        torch.set_rng_state(state)
        np.random.set_state(legacy)
        random.setstate(python)
        torch.set_num_threads(threads)
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()
        logging.getLogger("accelerate").setLevel(accelerate_level)
        for name in ENVIRONMENT:
            os.environ.pop(name, None)
        os.environ.update(environment)
        put_states(singletons)


def states() -> States:
    """What accelerate's singletons hold: making other training arguments begins them anew."""
    return {kind: dict(kind._shared_state) for kind in (PartialState, AcceleratorState, GradientState)}


def put_states(those: States) -> None:
    """Have them hold that again."""
    for kind, content in those.items():
        kind._shared_state.clear()
        kind._shared_state.update(content)
