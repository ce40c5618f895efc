"""Turn a torch model into one clean ONNX file that every engine and every ONNX tool reads."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from torch import nn

from ..engines import REFERENCE, Batch, load
from ..engines.torch import input_names, output_names
from ..errors import Failure, UserError, nearest
from ..models.torch_folder import load_module
from .agree import allowed
from .clean import clean
from .names import restore_names
from .parity import difference
from .sample import sample_batches
from .trace import MODEL, is_plain, share, trace

INPUT_DTYPES = ("int64", "int32")
_PROTOBUF_LIMIT = 2**31 - 2**20


def export_onnx(
    model: nn.Module | str | Path,
    destination: str | Path,
    *,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    input_dtype: str = "int64",
    sample: Sequence[Batch] | None = None,
    check: Sequence[Batch] = (),
) -> None:
    """Write a model's graph to a file; dynamic batch and length; the model itself is left as it was.

    `inputs`, `outputs`: names, by default those of the model's family and head. `sample`: batches to trace (the
    first) and to compare on (all), needed only for models whose inputs are not the usual ones. `check`: further
    batches to compare on, such as real rows. The file appears only if ONNX Runtime then gives the model's own logits.
    Takes 5 to 15 seconds. Weights of 2 GB and more, which one ONNX file cannot hold, lie beside the graph in
    `<name>.data`.
    """
    check_input_dtype(input_dtype)
    module: nn.Module = model if isinstance(model, nn.Module) else load_module(model)
    inputs, outputs = tuple(inputs or input_names(module)), tuple(outputs or output_names(module))
    batches = list(sample or sample_batches(module, inputs))
    # Eager attention: 217 nodes for a 6-layer encoder instead of 289, and 2 to 6 % faster on both engines.
    shared = share(module)
    proto = trace(shared, batches[0], inputs, outputs, input_dtype)
    restore_names(proto, shared, MODEL)
    clean(proto, inputs, outputs)
    # A graph is FP32: one of a half-precision model is compared with the same weights in FP32, as bf16 is 0.1 off.
    _write_checked(proto, Path(destination), module if is_plain(module) else shared, [*batches, *check])


def check_input_dtype(input_dtype: str) -> None:
    """Refuse a type that graphs do not offer."""
    if input_dtype not in INPUT_DTYPES:
        raise UserError(
            f"The 'input_dtype' option must be int64 or int32. Got '{input_dtype}'.",
            hint=nearest(input_dtype, INPUT_DTYPES),
        )


def _write_checked(proto: Any, destination: Path, module: nn.Module, batches: Sequence[Batch]) -> None:
    """Write to a folder beside the destination, compare with torch there, and only then move it into place."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=destination.parent) as folder:
        path = Path(folder) / destination.name
        save(proto, path)
        engine = load(REFERENCE, path)
        off, largest = difference(module, engine, batches)
        most = allowed(largest)
        if not off <= most:  # NaN too
            raise Failure(
                f"The exported graph does not give the model's own logits: off by {off:.1e}, allowed {most:.1e}.",
                hint="Something in the model's forward depends on the sample it was traced with.",
            )
        del engine  # Windows moves no file that is open
        for written in sorted(Path(folder).iterdir(), reverse=True):  # the weights before the graph that names them
            written.replace(destination.parent / written.name)


def save(proto: Any, path: Path) -> None:
    """Write a graph as one file if protobuf allows it, else with its weights beside it."""
    apart = proto.ByteSize() >= _PROTOBUF_LIMIT
    onnx.save_model(
        proto, path, save_as_external_data=apart, all_tensors_to_one_file=True, location=weights_file(path).name
    )


def weights_file(graph: Path) -> Path:
    """Where the weights of a graph lie that is too large for one file."""
    return graph.with_name(f"{graph.name}.data")
