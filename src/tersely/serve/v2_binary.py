"""The binary tensor extension: JSON first, then the tensors' bytes in the order of the JSON."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .limits import Refusal

HEADER = "Inference-Header-Content-Length"


def split(body: bytes, json_length: str | None) -> tuple[bytes, bytes]:
    """A body's JSON and what follows it; without the header all of it is JSON."""
    if json_length is None:
        return body, b""
    if not (json_length.isascii() and json_length.isdigit() and len(json_length) < 16):
        raise Refusal(422, f"The header {HEADER} must be a whole number.")
    length = int(json_length)
    if length > len(body):
        raise Refusal(422, f"The header {HEADER} says {length}, but the body has {len(body)} bytes.")
    return body[:length], body[length:]


def take(inputs: Sequence[Mapping[str, Any]], tail: bytes) -> dict[str, bytes]:
    """The bytes of each input that says how many it has, by name; all of the tail must be somebody's."""
    found: dict[str, bytes] = {}
    start = 0
    for tensor in inputs:
        parameters = tensor.get("parameters")
        size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
        if size is None:
            continue
        if type(size) is not int or not 0 <= size <= len(tail) - start:
            raise Refusal(422, f"The 'binary_data_size' of '{tensor['name']}' does not fit the {len(tail)} bytes sent.")
        found[tensor["name"]] = tail[start : start + size]
        start += size
    if start != len(tail):
        raise Refusal(422, f"The inputs name {start} bytes of binary data, but {len(tail)} were sent.")
    return found


def texts_of(raw: bytes, name: str, most: int) -> list[str]:
    """BYTES elements: each its length in four bytes, little end first, and UTF-8. At most so many are read.

    >>> texts_of(b"\\x02\\x00\\x00\\x00hi", "TEXT", 1)
    ['hi']
    """
    found: list[str] = []
    start = 0
    while start < len(raw):
        if len(found) > most:
            break  # refused by the caller, who knows the words for it
        end = start + 4
        length = int.from_bytes(raw[start:end], "little")
        if end > len(raw) or length > len(raw) - end:
            raise Refusal(422, f"The binary data of '{name}' ends within an element.")
        try:
            found.append(raw[end : end + length].decode("utf-8"))
        except UnicodeDecodeError:
            raise Refusal(422, f"Element {len(found)} of '{name}' is not UTF-8.") from None
        start = end + length
    return found


def raw_of(values: Sequence[Any], datatype: str) -> bytes:
    """An output's bytes: BYTES or FP32, in row-major order."""
    if datatype == "BYTES":
        parts = [value.encode("utf-8") for value in values]
        return b"".join(struct.pack("<I", len(part)) + part for part in parts)
    return np.asarray(values, "<f4").tobytes()
