"""Bring a graph to an operator set that has what quantized graphs need."""

from __future__ import annotations

from typing import Any

from onnx import version_converter

from ..errors import UserError

OLDEST = 11
LEAST = 17
"""The first operator set with LayerNormalization; 13 brought the quantizers with a scale per channel."""
_PLAIN = 13
_ANEW = f"Export it anew with opset {LEAST} or newer."


def raise_opset(proto: Any, where: str) -> Any:
    """Give the graph with operator set 17 or newer; older than 11 is refused."""
    refuse_old(proto, where)
    version = opset_of(proto)
    if version < _PLAIN:
        # Until 13 axes are attributes, and a Softmax over one axis flattens the others.
        try:
            proto = version_converter.convert_version(proto, _PLAIN)
        except RuntimeError as error:
            raise UserError(
                f"The graph's operator set is {version} and cannot be raised.", where=where, hint=_ANEW
            ) from error
    if version < LEAST:
        # From 13 to 17 types were added, but no operator of an encoder changed its meaning. (onnx's own converter
        # stumbles there over the LayerNormalization that ONNX Runtime writes into older sets.)
        next(held for held in proto.opset_import if not held.domain).version = LEAST
    proto.ir_version = max(proto.ir_version, 8)
    return proto


def refuse_old(proto: Any, where: str) -> None:
    """Refuse operator sets that cannot be raised."""
    version = opset_of(proto)
    if version < OLDEST:
        raise UserError(f"The graph's operator set is {version}, which is too old.", where=where, hint=_ANEW)


def opset_of(proto: Any) -> int:
    """The version of the standard operators; 0 if none is named."""
    return max((int(held.version) for held in proto.opset_import if not held.domain), default=0)
