"""What each engine is: its packages, precisions, place in the order of choice, graph form and costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .cpu import CLASSES, EXACT_CLASSES


@dataclass(frozen=True)
class Costs:
    """What a run costs an engine beside its tokens, and which shapes it is given.

    `overhead`: in tokens that one thread could have done. Lengths are padded up to multiples of `step`. `sizes`: rows
    a batch.
    """

    overhead: int
    step: int = 1
    sizes: Sequence[int] = range(1, 17)


@dataclass(frozen=True)
class EngineFacts:
    """All that others ask of an engine before they load it."""

    type: str
    """The class that runs, in the file that has the engine's name."""
    packages: tuple[str, ...]
    """What it cannot do without."""
    extra: str | None
    """The extra of ours that brings the packages; None: the base install has them."""
    precisions: tuple[str, ...]
    runs_graphs: bool = True
    """Whether it loads ONNX graphs, as artifacts hold them."""
    ranks: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Its place among all engines by precision and CPU class; 0 is taken first."""
    fuses_int8: bool = False
    """Whether its own INT8 graph is the one in fused integer operators; else it is the one in standard ones."""
    int8_attention: bool = False
    """Whether INT8 products of attention pay where integer sums have 32 bits: `quantize.attention` has numbers."""
    costs: Costs | None = None
    """What a batch of a server costs it; None: it serves nothing."""
    has_streams: bool = True
    """Whether several calls of `run` go on at once."""
    takes_providers: bool = False


def _by_class(*, exact: int, saturating: int) -> dict[str, int]:
    """A rank on CPUs whose integer sums have 32 bits, and one on all others."""
    return {name: exact if name in EXACT_CLASSES else saturating for name in CLASSES}


# Ranks: on avx2 OpenVINO's INT8 is slower than its own FP32 (0.75×) and ONNX Runtime's up to 1.8× faster; with exact
# 32-bit sums OpenVINO's is about 4× its FP32, ONNX Runtime's 2×.
# Costs: six layers of 384 on one thread of a VNNI CPU: OpenVINO takes 6.4 ms for a row of 64, 11 for two, 19 for four,
# 35 for eight; ONNX Runtime 5.0 for a row of 58 on average, 9.2 for two, 17 for four. Few sizes and few lengths for
# OpenVINO: it prepares for each shape anew and keeps that, 3 MB each and more, and a row of 56 takes it as long as one
# of 64. ONNX Runtime prepares nothing.
ENGINES: dict[str, EngineFacts] = {
    "onnxruntime": EngineFacts(
        "OnnxRuntimeEngine",
        packages=("onnxruntime",),
        extra=None,
        precisions=("fp32", "int8"),
        ranks={"int8": _by_class(exact=1, saturating=0), "fp32": _by_class(exact=2, saturating=1)},
        fuses_int8=True,
        costs=Costs(12),
        takes_providers=True,
    ),
    "openvino": EngineFacts(
        "OpenVinoEngine",
        packages=("openvino",),
        extra="openvino",
        precisions=("fp32", "bf16", "int8"),
        ranks={"int8": _by_class(exact=0, saturating=3), "fp32": _by_class(exact=3, saturating=2)},
        int8_attention=True,
        costs=Costs(32, 16, (1, 2, 4, 8, 16)),
    ),
    "torch": EngineFacts(
        "TorchEngine",
        packages=("torch", "transformers"),
        extra="compress",
        precisions=("fp32",),
        runs_graphs=False,
        has_streams=False,
    ),
}
"""Every engine; the base install's first."""

REFERENCE = "onnxruntime"
"""The engine of the base install: graphs are checked, observed and compared on it, and FP32 is scored on it."""

GRAPH_ENGINES = tuple(name for name, facts in ENGINES.items() if facts.runs_graphs)
"""The engines that run artifacts."""
