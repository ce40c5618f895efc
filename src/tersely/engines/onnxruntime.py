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
from .engine import Batch, Outputs, pick

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
        self._session = _session(graph_file(path), self.threads, _checked(providers))
        unknown = [value for value in self._session.get_inputs() if value.type not in _TYPES]
        if unknown:
            raise UserError(
                f"The input '{unknown[0].name}' is of type {unknown[0].type}, not integer.", where=str(path)
            )
        self._types = {value.name: _TYPES[value.type] for value in self._session.get_inputs()}
        self.inputs = tuple(self._types)
        self.outputs = tuple(value.name for value in self._session.get_outputs())

    def run(self, batch: Batch) -> Outputs:
        """Inputs [rows, length] to logits; the batch's integers are cast to the graph's own type."""
        feed = {
            name: np.ascontiguousarray(array, dtype=self._types[name])
            for name, array in pick(batch, self.inputs).items()
        }
        return tuple(np.asarray(output, dtype=np.float32) for output in self._session.run(None, feed))


def graph_file(path: str | Path) -> Path:
    """Give the path back if a file is there."""
    if not existing(path, "ONNX file").is_file():
        raise UserError("This is not a file; an ONNX graph is expected.", where=str(path))
    return Path(path)


def signature(path: str | Path) -> tuple[Sequence[Any], Sequence[Any]]:
    """A graph's inputs and outputs as ONNX Runtime describes them: `name`, `type`, `shape`."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # it is not run
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.get_inputs(), session.get_outputs()


def _session(path: Path, threads: int, providers: list[Any]) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = _QUIET
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=providers)
    except Exception as error:  # its exceptions share no base class but this one
        reason = str(error).splitlines()[0]
        raise UserError(
            f"ONNX Runtime cannot load this graph: {reason}",
            where=str(path),
            hint="The file may be damaged, or made for a newer ONNX Runtime.",
        ) from error


def _checked(providers: Sequence[Any] | None) -> list[Any]:
    """Providers, each a name or (name, options); ONNX Runtime itself passes over unknown ones with a warning."""
    known = onnxruntime.get_available_providers()
    for provider in providers or ():
        name = provider if isinstance(provider, str) else provider[0]
        if name not in known:
            raise UserError(f"ONNX Runtime here has no provider '{name}'.", hint=nearest(name, known))
    return list(providers) if providers else ["CPUExecutionProvider"]
