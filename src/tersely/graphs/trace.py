"""Trace a torch model with torch's dynamo exporter, without touching the model."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import nn

from ..engines import Batch
from ..engines.torch import as_tuple
from ..errors import Failure

MODEL = "model."
"""What stands before every parameter's name in a traced graph."""
# The first opset with Gelu as one node; ONNX Runtime 1.20 reads up to 21.
OPSET = 20
_LOGGERS = ("torch.onnx", "torch.export", "torch.fx", "onnxscript", "onnx_ir")


def share(module: nn.Module) -> Any:
    """A second model over the same weights, in eval mode with eager attention: free to be changed, and no copy.

    Weights that are not FP32 on the CPU are copied, for `Module.float()` would change them in place.
    """
    plain = is_plain(module)
    memo: dict[int, Any] = {id(tensor): tensor for tensor in _tensors(module)} if plain else {}
    shared = copy.deepcopy(module, memo)
    shared = shared if plain else shared.float().cpu()
    if hasattr(shared, "set_attn_implementation"):
        shared.set_attn_implementation("eager")
    return shared.eval()


def is_plain(module: nn.Module) -> bool:
    """Whether all weights are FP32 on the CPU, as a graph's are."""
    plain = {torch.float32, torch.int64, torch.bool}
    return all(tensor.device.type == "cpu" and tensor.dtype in plain for tensor in _tensors(module))


def _tensors(module: nn.Module) -> list[torch.Tensor]:
    return list(chain(module.parameters(), module.buffers()))


def trace(module: nn.Module, batch: Batch, inputs: Sequence[str], outputs: Sequence[str], input_dtype: str) -> Any:
    """Trace a module on a batch to an `onnx.ModelProto`, as the exporter leaves it, with batch and length dynamic."""
    arguments = tuple(torch.from_numpy(np.asarray(batch[name]).astype(input_dtype)) for name in inputs)
    sizes = [dict.fromkeys(range(min(2, one.ndim)), torch.export.Dim.DYNAMIC) for one in arguments]
    with _quiet(), torch.no_grad():
        try:
            program = torch.onnx.export(
                _Flat(module, tuple(inputs), tuple(outputs)),
                arguments,
                dynamo=True,
                verbose=False,
                opset_version=OPSET,
                input_names=list(inputs),
                output_names=list(outputs),
                dynamic_shapes=(tuple(sizes),),
            )
        except torch.onnx.OnnxExporterError as error:
            cause = error.__cause__ or error
            reason = next((line for line in str(cause).splitlines() if line.strip()), type(cause).__name__)
            raise Failure(f"The model cannot be turned into an ONNX graph: {reason}") from error
    return program.model_proto


class _Flat(nn.Module):  # type: ignore[misc]  # torch is Any to mypy
    """Tensors in, tensors out, whatever the model's forward takes and gives."""

    def __init__(self, module: nn.Module, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.inputs, self.outputs = module, inputs, outputs
        self.training = False

    def forward(self, *arguments: torch.Tensor) -> tuple[torch.Tensor, ...]:
        # Cast inside the graph, so that its inputs may be int32.
        named = {name: argument.long() for name, argument in zip(self.inputs, arguments, strict=True)}
        return as_tuple(self.model(**named), self.outputs)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's remarks (packages it does not need, constants it did not fold) from the user."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
