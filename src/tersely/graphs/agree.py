"""See that two forms of a graph give the same logits on ONNX Runtime, without a model or rows to ask."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ..engines import REFERENCE, Batch, Engine, Outputs, load
from ..errors import Failure, UserError
from .layers import find_tables
from .wiring import givers

_REPORT = "Export it anew without an optimizer, and report this one."
_LENGTHS = ([7, 4, 2], [3])
_LARGE = 2**31  # bytes; one ONNX file cannot hold more


def allowed(largest: float) -> float:
    """How far a logit may be off: 1e-4. FP32 cannot promise that above 100: there, a millionth of the largest logit.

    >>> allowed(7.0), allowed(5000.0)
    (0.0001, 0.005)
    """
    return max(1e-4, 1e-6 * largest)


def expect_agreement(original: Engine, proto: Any, where: str) -> None:
    """Refuse a graph whose logits are not those of the original, on made-up batches; also those that are NaN.

    Takes one load of the model.
    """
    batches = _made_up_batches(proto)
    names = [value.name for value in proto.graph.output]
    before = _run(original, batches, names, where)
    with tempfile.TemporaryDirectory(prefix="tersely-") as folder:
        path = Path(folder) / "model.onnx"
        # Not ByteSize(), which writes everything once to measure it: 4 s for a base model.
        apart = sum(8 * math.prod(tensor.dims) for tensor in proto.graph.initializer) >= _LARGE
        onnx.save_model(proto, path, save_as_external_data=apart)
        try:
            engine = load(REFERENCE, path, threads=original.threads)
        except UserError as error:
            raise Failure(f"The graph was read wrongly: {error.what}", where=where, hint=_REPORT) from error
        after = _run(engine, batches, names, where)
        if apart:  # which has emptied the graph
            onnx.load_external_data_for_model(proto, folder)
            for tensor in proto.graph.initializer:
                tensor.ClearField("data_location")
    if any(np.isnan(logits).any() for logits in before):
        raise UserError("The graph gives NaN.", where=where, hint="Check it on rows of your own.")
    off = max(float(np.max(np.abs(ours - theirs))) for ours, theirs in zip(before, after, strict=True))
    most = allowed(max(float(np.max(np.abs(logits))) for logits in before))
    if not off <= most:
        what = f"The graph was read wrongly: its logits are off by {off:.1e}, allowed {most:.1e}."
        raise Failure(what, where=where, hint=_REPORT)


def _made_up_batches(proto: Any) -> list[Batch]:
    """Two batches of ids that the graph's tables have: three padded rows and a single short one."""
    random = np.random.default_rng(0)
    rows = {value.name: _rows(proto, value.name) for value in proto.graph.input}
    batches: list[Batch] = []
    for lengths in _LENGTHS:
        mask = (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.int64)
        drawn = {name: random.integers(0, count, mask.shape) * mask for name, count in rows.items()}
        batches.append(drawn | ({"attention_mask": mask} if "attention_mask" in rows else {}))
    return batches


def _rows(proto: Any, name: str) -> int:
    """How many rows the table has that an input points into; 2 where that does not show."""
    nodes = givers(proto.graph)
    found = 2
    for table in find_tables(proto, smallest=1):
        indices = table.indices
        while indices in nodes and nodes[indices].op_type in {"Cast", "Identity"}:
            indices = nodes[indices].input[0]
        if indices == name:
            found = table.shape[0]
    return found


def _run(engine: Engine, batches: Sequence[Batch], names: Sequence[str], where: str) -> Outputs:
    """The outputs of these names, of all batches one after the other."""
    places = [engine.outputs.index(name) for name in names]
    try:
        return tuple(outputs[place] for outputs in map(engine.run, batches) for place in places)
    except Exception as error:  # its exceptions share no base class but this one
        reason = str(error).splitlines()[0]
        raise UserError(f"ONNX Runtime cannot run this graph: {reason}", where=where) from error
