"""Training draws random numbers, switches logs off and begins accelerate's state anew; afterwards all is as it was."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from accelerate.state import AcceleratorState, GradientState, PartialState
from transformers.utils import logging as transformers_logging

States = dict[Any, dict[str, Any]]
ENVIRONMENT = ("ACCELERATE_MIXED_PRECISION", "ACCELERATE_USE_CPU")


@contextmanager
def isolated() -> Iterator[None]:
    """Restore the generators, the threads and default type of torch, what accelerate holds, and logs and bars."""
    accelerate = logging.getLogger("accelerate")
    with ExitStack() as restored:
        restored.callback(torch.set_rng_state, torch.get_rng_state())
        restored.callback(np.random.set_state, np.random.get_state())
        restored.callback(random.setstate, random.getstate())
        restored.callback(torch.set_num_threads, torch.get_num_threads())
        restored.callback(torch.set_default_dtype, torch.get_default_dtype())
        restored.callback(transformers_logging.set_verbosity, transformers_logging.get_verbosity())
        if transformers_logging.is_progress_bar_enabled():
            restored.callback(transformers_logging.enable_progress_bar)
        restored.callback(accelerate.setLevel, accelerate.level)
        restored.callback(os.environ.update, {name: os.environ[name] for name in ENVIRONMENT if name in os.environ})
        for name in ENVIRONMENT:
            restored.callback(os.environ.pop, name, None)
        restored.callback(put_states, states())
        transformers_logging.set_verbosity_error()
        transformers_logging.disable_progress_bar()
        yield


def states() -> States:
    """What accelerate's singletons hold: making other training arguments begins them anew."""
    return {kind: dict(kind._shared_state) for kind in (PartialState, AcceleratorState, GradientState)}


def put_states(those: States) -> None:
    """Have them hold that again."""
    for kind, content in those.items():
        kind._shared_state.clear()
        kind._shared_state.update(content)
