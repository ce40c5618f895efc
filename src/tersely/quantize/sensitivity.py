"""The harm that each layer does alone: everything else float, how far do the logits move?"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx

from .. import engines
from ..graphs.rewrite import save_sharing
from ..graphs.write_onnxruntime import write_onnxruntime
from ..measure.score import mean_abs_logit_change
from ..progress import SILENT, Progress
from ..quant_map import QuantMap
from ..runtime.predictor import run
from ..tasks import Feature

# `--skip_layers auto` leaves a layer float that harms so many times as much as the median one, and whose share of the
# squares of all (errors of layers add up like independent ones) is so large.
TIMES_MEDIAN, SHARE = 4.0, 0.25


def sensitivity(
    proto: Any,
    quant_map: QuantMap,
    features: Sequence[Feature],
    pad_id: int,
    centred_axis: int | None,
    *,
    progress: Progress = SILENT,
) -> dict[str, float]:
    """Mean |Δlogit| on the features with one layer in INT8, for every layer; the most harmful first.

    Runs the features once for each layer, on ONNX Runtime.
    """
    with tempfile.TemporaryDirectory(prefix="tersely-") as scratch:
        folder = Path(scratch)
        # The weights are written once; each graph is then some kilobytes that refer to them, and one layer's integers.
        save_sharing(proto, {"references.onnx": proto}, folder, "fp32.onnx")
        references = onnx.load(folder / "references.onnx", load_external_data=False)
        exact = run(engines.load(engines.REFERENCE, folder / "fp32.onnx"), features, pad_id)
        harm = {}
        with progress.track("sensitivity", len(quant_map.layers)) as advance:
            for name, layer in quant_map.layers.items():
                alone = replace(quant_map, layers={name: layer}, tables={}, products={})
                onnx.save_model(write_onnxruntime(references, alone), folder / "alone.onnx")
                engine = engines.load(engines.REFERENCE, folder / "alone.onnx", precision="int8")
                harm[name] = mean_abs_logit_change(exact, run(engine, features, pad_id), centred_axis)
                del engine  # its file is written anew
                advance(1, name)
    return dict(sorted(harm.items(), key=lambda pair: (-pair[1], pair[0])))


def too_harmful(harm: dict[str, float]) -> list[str]:
    """The layers that `--skip_layers auto` leaves float: those that stand out from the rest.

    >>> too_harmful({"a": 0.9, "b": 0.1, "c": 0.1})
    ['a']
    >>> too_harmful({"a": 0.2, "b": 0.1, "c": 0.1})
    []
    """
    total = sum(value**2 for value in harm.values())
    usual = statistics.median(harm.values()) if harm else 0.0
    return [name for name, value in harm.items() if value > TIMES_MEDIAN * usual and value**2 > SHARE * total > 0]
