"""ONNX Runtime, on the CPU or whichever provider the user names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
import onnxruntime
from numpy.typing import DTypeLike

from ..errors import UserError, existing, nearest
from .cpu import threads_or_all
from .engine import Batch, Outputs, feed, input_types, unloadable

_TYPES: dict[str, DTypeLike] = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_}
_QUIET = 4  # only what is fatal; everything else comes as an exception, which we explain


@final
class OnnxRuntimeEngine:
    """A graph loaded into ONNX Runtime."""

    name = "onnxruntime"

    def __init__(
        self,
        path: str | Path,
        *,
        threads: int | None = None,
        precision: str = "fp32",
        providers: Sequence[Any] | None = None,
        streams: int = 1,
    ) -> None:
        # As many runs as there are callers go on at once, whatever `streams` says, each in its caller's thread.
        self.precision = precision
        self.threads = threads_or_all(threads)
        self._session = _session(path, self.threads, providers)
        named = {value.name: value.type for value in self._session.get_inputs()}
        self._types = input_types(named, _TYPES, path)
        self.inputs = tuple(self._types)
        self.outputs = tuple(value.name for value in self._session.get_outputs())

    def run(self, batch: Batch) -> Outputs:
        """Inputs [rows, length] to logits; the batch's integers are cast to the graph's own type."""
        outputs = self._session.run(None, feed(batch, self._types))
        return tuple(np.asarray(output, dtype=np.float32) for output in outputs)


def signature(path: str | Path) -> tuple[Sequence[Any], Sequence[Any]]:
    """A graph's inputs and outputs as ONNX Runtime describes them: `name`, `type`, `shape`."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # it is not run
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.get_inputs(), session.get_outputs()


def _session(path: str | Path, threads: int, providers: Sequence[Any] | None) -> Any:
    if not existing(path, "ONNX file").is_file():
        raise UserError("This is not a file; an ONNX graph is expected.", where=str(path))
    known = _checked(providers)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = _QUIET
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=known)
    except Exception as error:  # its exceptions share no base class but this one
        raise unloadable("ONNX Runtime", str(error).splitlines()[0], path) from error


def _checked(providers: Sequence[Any] | None) -> list[Any]:
    """Providers, each a name or (name, options); ONNX Runtime itself passes over unknown ones with a warning."""
    known = onnxruntime.get_available_providers()
    for provider in providers or ():
        name = provider if isinstance(provider, str) else provider[0]
        if name not in known:
            raise UserError(f"ONNX Runtime here has no provider '{name}'.", hint=nearest(name, known))
    return list(providers) if providers else ["CPUExecutionProvider"]
