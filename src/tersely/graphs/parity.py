"""How far a graph's logits are from the torch model's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import nn

from ..engines import Batch, Engine, Outputs
from ..engines.torch import TorchEngine
from ..errors import Failure


def parity(model: nn.Module, engine: Engine, batches: Sequence[Batch]) -> float:
    """The largest |Δlogit| between torch and an engine on real (unpadded) positions."""
    return difference(model, engine, batches)[0]


def difference(model: nn.Module, engine: Engine, batches: Sequence[Batch]) -> tuple[float, float]:
    """The largest |Δlogit| and the largest |logit| of the torch model, on real positions; NaN if either has one."""
    reference = TorchEngine(model, threads=engine.threads, inputs=engine.inputs, outputs=engine.outputs)
    pairs = [(batch, reference.run(batch), engine.run(batch)) for batch in batches]
    for _, ours, theirs in pairs:
        if [array.shape for array in ours] != [array.shape for array in theirs]:
            raise Failure(
                f"The engine '{engine.name}' gives outputs of shapes {[a.shape for a in theirs]}, "
                f"torch of {[a.shape for a in ours]}."
            )
    per_position = [
        all(ours[i].ndim > 1 and ours[i].shape[1] == batch["input_ids"].shape[1] for batch, ours, _ in pairs)
        for i in range(len(pairs[0][1]))
    ]
    off, largest = [0.0], [0.0]
    for batch, ours, theirs in pairs:
        for one, other in zip(_real(ours, batch, per_position), _real(theirs, batch, per_position), strict=True):
            off.append(float(np.max(np.abs(one - other), initial=0.0)))
            largest.append(float(np.max(np.abs(one), initial=0.0)))
    return float(np.max(off)), float(np.max(largest))


def _real(outputs: Outputs, batch: Batch, per_position: list[bool]) -> Outputs:
    """Outputs without the padding's: what stands there is nobody's answer, and engines differ in it."""
    if "attention_mask" not in batch:
        return outputs
    real = np.asarray(batch["attention_mask"]).astype(bool)
    return tuple(output[real] if apart else output for output, apart in zip(outputs, per_position, strict=True))
