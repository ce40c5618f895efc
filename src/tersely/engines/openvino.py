"""OpenVINO on the CPU, in FP32 or bf16."""

from __future__ import annotations

import queue
from pathlib import Path
from typing import Any, final

import numpy as np
import openvino
from numpy.typing import DTypeLike

from ..errors import UserError, existing
from .cpu import cpu, threads_or_all
from .engine import Batch, Outputs, feed, input_types, unloadable

_HINTS = {"fp32": "f32", "int8": "f32", "bf16": "bf16"}
_TYPES: dict[str, DTypeLike] = {"i64": np.int64, "i32": np.int32, "boolean": np.bool_}


@final
class OpenVinoEngine:
    """A graph (ONNX, or OpenVINO's own xml) compiled for this machine's CPU."""

    name = "openvino"

    def __init__(
        self, path: str | Path, *, threads: int | None = None, precision: str = "fp32", streams: int = 1
    ) -> None:
        self.threads = threads_or_all(threads)
        self.precision = precision
        core = openvino.Core()
        if precision == "bf16":
            _require_bf16(core)
        model, compiled = _compile(core, path, self.threads * streams, _HINTS[precision], streams)
        # One request a stream: a second would wait for the first anyhow. Who takes one out of the queue has it alone.
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for _ in range(streams):
            self._requests.put(compiled.create_infer_request())
        # Names are taken from the graph as read: compiling drops casts and lends their names to the inputs.
        named = {port.get_any_name(): port.get_element_type().get_type_name() for port in model.inputs}
        self._types = input_types(named, _TYPES, path)
        self.inputs = tuple(self._types)
        self.outputs = tuple(port.get_any_name() for port in model.outputs)

    def run(self, batch: Batch) -> Outputs:
        """Inputs [rows, length] to logits; the batch's integers are cast to the graph's own type."""
        inputs = feed(batch, self._types)
        request = self._requests.get()
        try:
            request.infer(inputs)
            # `.data` is a view of the request's buffer, which the next run overwrites.
            return tuple(np.array(tensor.data, dtype=np.float32) for tensor in request.output_tensors)
        finally:
            self._requests.put(request)


def _require_bf16(core: Any) -> None:
    # Asked of the plugin, not of the flags: it knows which of them it has kernels for.
    if "BF16" not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        raise UserError(
            f"The precision 'bf16' needs bfloat16 arithmetic, and OpenVINO finds none on this CPU ({cpu().name}).",
            hint="Use 'fp32'. CPUs with avx512_bf16 or amx_bf16 have it.",
        )


def _compile(core: Any, path: str | Path, threads: int, precision: str, streams: int) -> tuple[Any, Any]:
    if not existing(path, "graph file").is_file():
        raise UserError("This is not a file; an ONNX or OpenVINO graph is expected.", where=str(path))
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": precision,
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": streams,
        "ENABLE_CPU_PINNING": False,  # every process would take the same first cores, whoever else is there
    }
    try:
        model = core.read_model(str(path))
        return model, core.compile_model(model, "CPU", settings)
    except RuntimeError as error:
        lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith("Exception from")]
        raise unloadable("OpenVINO", lines[0] if lines else str(error), path) from error
