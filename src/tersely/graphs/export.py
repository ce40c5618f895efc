"""Turn a torch model into one clean ONNX file that every engine and every ONNX tool reads."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import nn

from ..engines import REFERENCE, Batch, Engine, Outputs, load
from ..engines.engine import INPUTS
from ..engines.torch import TorchEngine, as_tuple, input_names, output_names
from ..errors import Failure, UserError, nearest
from ..models.carve import twin
from ..models.torch_folder import load_module
from .agree import allowed
from .plain import clean
from .weight_names import restore_names

INPUT_DTYPES = ("int64", "int32")
# The first opset with Gelu as one node; ONNX Runtime 1.20 reads up to 21.
OPSET = 20
_MODEL = "model."  # what stands before every parameter's name in a traced graph
_PROTOBUF_LIMIT = 2**31 - 2**20
_LOGGERS = ("torch.onnx", "torch.export", "torch.fx", "onnxscript", "onnx_ir")


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
    restore_names(proto, shared, _MODEL)
    clean(proto, inputs, outputs)
    # A graph is FP32: one of a half-precision model is compared with the same weights in FP32, as bf16 is 0.1 off.
    _write_checked(proto, Path(destination), module if _is_plain(module) else shared, [*batches, *check])


def check_input_dtype(input_dtype: str) -> None:
    """Refuse a type that graphs do not offer."""
    if input_dtype not in INPUT_DTYPES:
        what = f"The 'input_dtype' option must be int64 or int32. Got '{input_dtype}'."
        raise UserError(what, hint=nearest(input_dtype, INPUT_DTYPES))


def weights_file(graph: Path) -> Path:
    """Where the weights of a graph lie that is too large for one file."""
    return graph.with_name(f"{graph.name}.data")


def difference(model: nn.Module, engine: Engine, batches: Sequence[Batch]) -> tuple[float, float]:
    """The largest |Δlogit| and the largest |logit| of the torch model, on real positions; NaN if either has one."""
    reference = TorchEngine(model, threads=engine.threads, inputs=engine.inputs, outputs=engine.outputs)
    runs = [(batch, reference.run(batch), engine.run(batch)) for batch in batches]
    for _, ours, theirs in runs:
        shapes, others = ([array.shape for array in outputs] for outputs in (ours, theirs))
        if shapes != others:
            raise Failure(f"The engine '{engine.name}' gives outputs of shapes {others}, torch of {shapes}.")
    per_position = [
        all(ours[i].ndim > 1 and ours[i].shape[1] == batch["input_ids"].shape[1] for batch, ours, _ in runs)
        for i in range(len(runs[0][1]))
    ]
    off, largest = [0.0], [0.0]
    for batch, *both in runs:
        for ours, theirs in zip(*(_real(outputs, batch, per_position) for outputs in both), strict=True):
            off.append(float(np.max(np.abs(ours - theirs), initial=0.0)))
            largest.append(float(np.max(np.abs(ours), initial=0.0)))
    return float(np.max(off)), float(np.max(largest))


def _real(outputs: Outputs, batch: Batch, per_position: list[bool]) -> Outputs:
    """Outputs without the padding's: what stands there is nobody's answer, and engines differ in it."""
    if "attention_mask" not in batch:
        return outputs
    real = np.asarray(batch["attention_mask"]).astype(bool)
    return tuple(output[real] if apart else output for output, apart in zip(outputs, per_position, strict=True))


def sample_batches(module: nn.Module, inputs: Sequence[str]) -> list[Batch]:
    """Three batches of valid ids: several padded rows (for tracing), one short row, two rows of unequal length.

    No number in them can be mistaken for the model's own.
    """
    unknown = [name for name in inputs if name not in INPUTS]
    if unknown:
        raise UserError(f"No sample can be made up for the input '{unknown[0]}'.", hint="Pass 'sample' batches.")
    taken = _numbers(module)
    # The tracer takes a size that equals one of the model's for that one (a length of 12 for 12 heads).
    rows = next(number for number in count(3) if number not in taken)
    length = next(number for number in count(rows + 4) if number not in taken)
    shapes = ([length - row for row in range(rows)], [2], [length - 2, length + 6])
    return [_batch(module, inputs, lengths) for lengths in shapes]


def _batch(module: nn.Module, inputs: Sequence[str], lengths: list[int]) -> Batch:
    config = getattr(module, "config", None)
    tables = [part.num_embeddings for part in module.modules() if isinstance(part, nn.Embedding)]
    vocabulary = int(getattr(config, "vocab_size", None) or max(tables, default=2))
    pad = int(getattr(config, "pad_token_id", None) or 0)
    ids = [number for number in range(min(vocabulary, 1000)) if number != pad] or [pad]
    shape = (len(lengths), max(lengths))
    mask = (np.arange(shape[1]) < np.array(lengths)[:, None]).astype(np.int64)
    drawn = np.array(ids, dtype=np.int64)[np.random.default_rng(0).integers(len(ids), size=shape)]
    second = (np.arange(shape[1]) >= shape[1] // 2).astype(np.int64) * mask
    batch = {"input_ids": np.where(mask == 1, drawn, pad), "attention_mask": mask, "token_type_ids": second}
    return {name: batch[name] for name in inputs}


def _numbers(module: nn.Module) -> set[int]:
    config = getattr(module, "config", None)
    values: dict[str, Any] = config.to_dict() if config is not None else {}
    numbers = {value for value in values.values() if isinstance(value, int)}
    sizes = {size for parameter in module.parameters() for size in parameter.shape}
    return numbers | sizes | {len(values.get("id2label") or ())}


def share(module: nn.Module) -> Any:
    """A second model over the same weights, in eval mode with eager attention: free to be changed, and no copy.

    Only weights that are not FP32 on the CPU are copied.
    """
    shared = twin(module, lambda tensor: tensor.cpu().float() if tensor.is_floating_point() else tensor.cpu())
    if hasattr(shared, "set_attn_implementation"):
        shared.set_attn_implementation("eager")
    return shared.eval()


def _is_plain(module: nn.Module) -> bool:
    """Whether all weights are FP32 on the CPU, as a graph's are."""
    plain = {torch.float32, torch.int64, torch.bool}
    tensors = chain(module.parameters(), module.buffers())
    return all(tensor.device.type == "cpu" and tensor.dtype in plain for tensor in tensors)


def trace(module: nn.Module, batch: Batch, inputs: Sequence[str], outputs: Sequence[str], input_dtype: str) -> Any:
    """Trace a module on a batch to an `onnx.ModelProto`, as the exporter leaves it, with batch and length dynamic."""
    arguments = tuple(torch.from_numpy(np.asarray(batch[name]).astype(input_dtype)) for name in inputs)
    sizes = [dict.fromkeys(range(min(2, argument.ndim)), torch.export.Dim.DYNAMIC) for argument in arguments]
    with _quiet(), torch.no_grad():
        try:
            program = torch.onnx.export(
                _Flat(module, tuple(inputs), tuple(outputs)), arguments, dynamo=True, verbose=False,
                opset_version=OPSET, input_names=list(inputs), output_names=list(outputs),
                dynamic_shapes=(tuple(sizes),),
            )  # fmt: skip
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
    with warnings.catch_warnings(), ExitStack() as restored:
        warnings.simplefilter("ignore")
        for logger in map(logging.getLogger, _LOGGERS):
            restored.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.ERROR)
        yield


def _write_checked(proto: Any, destination: Path, module: nn.Module, batches: Sequence[Batch]) -> None:
    """Write to a folder beside the destination, compare with torch there, and only then move it into place.

    One file if protobuf allows it, else the weights beside it.
    """
    destination.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=destination.parent) as folder:
        path = Path(folder) / destination.name
        apart = proto.ByteSize() >= _PROTOBUF_LIMIT
        onnx.save_model(
            proto, path, save_as_external_data=apart, all_tensors_to_one_file=True, location=weights_file(path).name
        )
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
