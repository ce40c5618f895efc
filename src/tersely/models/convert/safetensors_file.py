"""Write tensors in the safetensors format: a length, a JSON header, the numbers. So the base install can convert."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]


def write_safetensors(path: str | Path, shapes: Mapping[str, tuple[int, ...]], give: Callable[[str], Float32]) -> None:
    """Write one float32 tensor per name; `give` is asked for one after the other, so that no two need be in memory.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = Path(folder) / "model.safetensors"
    ...     write_safetensors(place, {"bias": (3,)}, lambda name: np.zeros(3, np.float32))
    ...     place.stat().st_size % 8
    4
    """
    names = sorted(shapes)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    start = 0
    for name in names:
        end = start + 4 * int(np.prod(shapes[name], dtype=np.int64))
        header[name] = {"dtype": "F32", "shape": list(shapes[name]), "data_offsets": [start, end]}
        start = end
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)  # the format asks for aligned numbers
    with Path(path).open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            tensor = np.ascontiguousarray(give(name), dtype="<f4")
            if tensor.shape != shapes[name]:
                raise ValueError(f"{name} has the shape {tensor.shape}, {shapes[name]} was announced")
            file.write(tensor.data)
