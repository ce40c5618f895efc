"""PyTorch: a live module; `models.load` makes one of a folder."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast, final

import numpy as np
import torch
from torch import nn

from ..tasks import TASKS, heads
from .cpu import threads_or_all
from .engine import INPUTS, Batch, Outputs, feed

INPUT_NAMES, OUTPUT_NAMES = "tersely_inputs", "tersely_outputs"
"""Attributes of a module that say what it takes and gives, where its class does not: a live model of the user's."""

_threads_lock = threading.Lock()


@final
class TorchEngine:
    """A torch model, run in eval mode; a live module is left as it was after each run."""

    name = "torch"

    def __init__(
        self,
        model: nn.Module,
        *,
        threads: int | None = None,
        precision: str = "fp32",
        inputs: tuple[str, ...] | None = None,
        outputs: tuple[str, ...] | None = None,
    ) -> None:
        self.precision = precision
        self.threads = threads_or_all(threads)
        self._module = model
        self.inputs = inputs or input_names(self._module)
        self.outputs = outputs or output_names(self._module)

    def run(self, batch: Batch) -> Outputs:
        """Inputs [rows, length] to logits, on the module's own device."""
        device = next((parameter.device for parameter in self._module.parameters()), torch.device("cpu"))
        arrays = feed(batch, dict.fromkeys(self.inputs, np.int64))
        inputs = {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}
        with torch_threads(self.threads), evaluating(self._module), torch.inference_mode():
            outputs = as_tuple(self._module(**inputs), self.outputs)
        return tuple(output.float().cpu().numpy() for output in outputs)


def input_names(module: nn.Module) -> tuple[str, ...]:
    """Which of the usual inputs make a difference to the model.

    RoBERTa and its kin name `token_type_ids` in forward but have one segment (a tokenizer's 1 would be out of range);
    DeBERTa-v2 as published has none at all. `type_vocab_size` tells; DistilBERT, MPNet, ModernBERT do not name it.
    """
    if (stated := getattr(module, INPUT_NAMES, None)) is not None:
        return tuple(stated)
    named = inspect.signature(module.forward).parameters
    segments = getattr(getattr(module, "config", None), "type_vocab_size", None)
    wanted = [name for name in INPUTS if name in named]
    return tuple(name for name in wanted if name != "token_type_ids" or segments is None or segments > 1)


def output_names(module: nn.Module) -> tuple[str, ...]:
    """Names of the outputs of a transformers model, by its head."""
    if (stated := getattr(module, OUTPUT_NAMES, None)) is not None:
        return tuple(stated)
    task = next((task for head, task in heads().items() if type(module).__name__.endswith(head)), None)
    return ("logits",) if task is None else cast(tuple[str, ...], TASKS[task].outputs)


def as_tuple(output: Any, names: Sequence[str]) -> tuple[torch.Tensor, ...]:
    """What a forward gave (a tensor, a tuple, transformers' named outputs) as the tensors of these names."""
    if isinstance(output, torch.Tensor):
        return (output,)
    if isinstance(output, dict):
        return tuple(output[name] for name in names) if all(n in output for n in names) else tuple(output.values())
    # A model set to give tuples puts hidden states behind its logits; two or more plain tensors are the outputs.
    return tuple(value for value in output if isinstance(value, torch.Tensor))


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a module in eval mode, and each part of it back to its own mode afterwards."""
    training = [part for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Let torch use so many threads for a while. The count is the process's, so only one may hold it."""
    with _threads_lock:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)
