"""Several graphs over one set of weights on disk.

The first graph is one self-contained file, which any ONNX tool loads. The others say of each large tensor that the
first holds too "it lies in that file, from this byte on": ONNX's own external data, which engines map into memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx

SMALLEST = 1024
"""Bytes below which a tensor is not worth a reference."""


def save_sharing(first: Any, others: Mapping[str, Any], folder: Path, name: str) -> None:
    """Write `first` as folder/name and every other graph, by its file's name, beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    content = first.SerializeToString(deterministic=True)
    (folder / name).write_bytes(content)
    places = _places(first, content)
    for other_name, proto in others.items():
        slim = onnx.ModelProto()
        slim.CopyFrom(proto)
        for tensor in slim.graph.initializer:
            place = places.get(_raw(tensor))
            if place is not None:
                _refer(tensor, name, *place)
        (folder / other_name).write_bytes(slim.SerializeToString(deterministic=True))


def _places(proto: Any, content: bytes) -> dict[bytes, tuple[int, int]]:
    """Where in the file each large tensor's bytes lie. They are in the order of the initializers."""
    places = {}
    start = 0
    for tensor in proto.graph.initializer:
        raw = _raw(tensor)
        if len(raw) >= SMALLEST:
            place = content.find(raw, start)  # found early, where equal bytes lie, is found as well
            start = place + len(raw)
            places[raw] = (place, len(raw))
    return places


def _raw(tensor: Any) -> bytes:
    return bytes(tensor.raw_data)


def _refer(tensor: Any, location: str, offset: int, length: int) -> None:
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    del tensor.external_data[:]
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, str(value)
