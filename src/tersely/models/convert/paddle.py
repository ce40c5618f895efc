"""From a PaddleNLP folder to a transformers folder: the story of `tersely convert`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ... import __version__
from ...atomic import atomic_folder, check_destination
from ...quant_map import Floats
from ..families import longest
from ..folder import NOTES
from .checkpoint import Sizes, read_checkpoint, read_sizes
from .config import make_config
from .parameters import PaddleParameter, map_parameters
from .pdparams import Arrays, read_pdparams
from .tokenizer import make_tokenizer


@dataclass(frozen=True)
class Converted:
    """What was written: the class that opens it, its labels, how many numbers it has, and what had no place in it."""

    output_dir: Path
    architecture: str
    labels: tuple[str, ...]
    parameters: int
    left_out: tuple[str, ...]
    rows_without_token: int
    """Rows of the table of words that the vocabulary does not number."""


def convert_paddle(folder: str | Path, output_dir: str | Path, *, overwrite: bool = False) -> Converted:
    """Write what `transformers.AutoModel….from_pretrained` reads; needs neither torch nor Paddle.

    Everything is checked before anything is written. The weights become float32.
    """
    check_destination(output_dir, overwrite=overwrite)
    checkpoint = read_checkpoint(folder)
    arrays = read_pdparams(checkpoint.weights)
    sizes = read_sizes(checkpoint, arrays)
    parameters, left_out = map_parameters(checkpoint, arrays, sizes)
    config = make_config(checkpoint, sizes)
    tokenizer_files, tokens = make_tokenizer(checkpoint, sizes.vocab_size, longest(config) or 0)
    with atomic_folder(output_dir, overwrite=overwrite) as scratch:
        written = _write_weights(scratch / "model.safetensors", parameters, arrays, sizes)
        for name, content in {"config.json": _json(config), **tokenizer_files}.items():
            (scratch / name).write_bytes(content)
        files = sorted([NOTES, *(path.name for path in scratch.iterdir())])
        notes = {"task": {}, "tersely_version": __version__, "files": files}
        (scratch / NOTES).write_bytes(_json(notes))
    return Converted(
        Path(output_dir),
        config["architectures"][0],
        tuple(config.get("id2label", {}).values()),
        written,
        left_out,
        sizes.vocab_size - tokens,
    )


def _write_weights(place: Path, by_name: Mapping[str, PaddleParameter], arrays: Arrays, sizes: Sizes) -> int:
    """Write all tensors; give the count of their numbers."""
    shapes = {name: held.shape[::-1] if held.transposed else held.shape for name, held in by_name.items()}
    added: dict[str, Floats] = {}
    if not sizes.type_vocab_size:
        # transformers' ERNIE always adds a token type: a table of zeros adds nothing.
        words = next(name for name in by_name if name.endswith("word_embeddings.weight"))
        table = np.zeros((2, sizes.embedding_size), np.float32)
        added[words.replace("word_embeddings", "token_type_embeddings")] = table
    shapes |= {name: tensor.shape for name, tensor in added.items()}
    write_safetensors(place, shapes, lambda name: added[name] if name in added else by_name[name].give(arrays))
    return sum(int(np.prod(shape)) for shape in shapes.values())


def _json(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode("utf-8")


def write_safetensors(path: str | Path, shapes: Mapping[str, tuple[int, ...]], give: Callable[[str], Floats]) -> None:
    """Write one float32 tensor per name; `give` is called for one after the other, so that no two need be in memory.

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
