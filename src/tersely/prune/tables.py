"""The tables of a model folder that go by token and by position: weights and config, cut to match each other."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import transformers

from ..errors import UserError
from ..models.families import SHIFTED

Tensors = dict[str, torch.Tensor]

WORDS = ("word_embeddings.weight", "tok_embeddings.weight")
POSITIONS = ("position_embeddings.weight", ".position_ids", "embeddings.token_type_ids")
"""Tables and buffers with a place for each position; a buffer's are along its second axis."""
DECODERS = re.compile(
    r"(((cls|lm_predictions)\.)?(predictions|lm_head)|generator_lm_head|vocab_projector|decoder)(\.decoder)?\.(weight|bias)"
)
"""What pretraining leaves behind under these names has a row for each token too, and is cut along."""
INDIFFERENT = ("encoder", "transformer", "layers", "classifier", "pooler", "pre_classifier", "qa_outputs")
"""Parts whose sizes have nothing to do with the vocabulary, even where they are the same number."""


def read_weights(folder: Path) -> Tensors:
    """Read all tensors of a transformers folder by name; nothing is unpickled but tensors."""
    try:
        for name, load in (("model.safetensors", safetensors.torch.load_file), ("pytorch_model.bin", _unpickle)):
            if (folder / name).is_file():
                return dict(load(folder / name))
            if (folder / f"{name}.index.json").is_file():
                index = json.loads((folder / f"{name}.index.json").read_text(encoding="utf-8"))
                parts = [load(folder / Path(part).name) for part in sorted(set(index["weight_map"].values()))]
                return {key: tensor for part in parts for key, tensor in part.items()}
    except Exception as error:  # safetensors, pickle and json each raise kinds of their own
        raise UserError(f"The weights cannot be read: {error}", where=str(folder)) from error
    raise UserError("The model folder has no weights.", where=str(folder), hint="Looked for model.safetensors.")


def write_weights(path: Path, tensors: Tensors) -> None:
    """Write tensors as one file; those that shared memory are written apart."""
    apart = {name: tensor.clone().contiguous() for name, tensor in tensors.items()}
    path.write_bytes(safetensors.torch.save(apart, metadata={"format": "pt"}))


def full_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Add to a config what it leaves to its class: numbers of tokens, sizes of tables."""
    kinds = transformers.CONFIG_MAPPING
    known = kinds[config["model_type"]]().to_dict() if config["model_type"] in kinds else {}
    sizes = {"vocab_size", "max_position_embeddings", "max_relative_positions"}
    defaults = {key: value for key, value in known.items() if key.endswith("_token_id") or key in sizes}
    return {**{key: value for key, value in defaults.items() if value is not None}, **config}


def tokens_in(config: Mapping[str, Any]) -> frozenset[int]:
    """Numbers of the tokens that a config names and its vocabulary has."""
    named = [value for key, value in config.items() if key.endswith("_token_id")]
    flat = [number for value in named for number in (value if isinstance(value, list) else [value])]
    return frozenset(number for number in flat if isinstance(number, int) and 0 <= number < config["vocab_size"])


def renumber(settings: Mapping[str, Any], numbers: Mapping[int, int]) -> dict[str, Any]:
    """Change every `…_token_id` of a config; one that names no token of the vocabulary stays as it is."""

    def new(value: Any) -> Any:
        return [new(one) for one in value] if isinstance(value, list) else numbers.get(value, value)

    return {key: new(value) if key.endswith("_token_id") else value for key, value in settings.items()}


def check_tables(tensors: Tensors, config: Mapping[str, Any], where: str) -> None:
    """Refuse weights whose word table is not found, or that may hold another table that goes by token."""
    size = config["vocab_size"]
    words = [name for name in tensors if name.endswith(WORDS)]
    if not words or any(len(tensors[name]) != size for name in words):
        found = f"{len(tensors[words[0]])} rows in '{words[0]}'" if words else "no table"
        what = f"A table of word embeddings with {size} rows is expected (names end in {' or '.join(WORDS)}); "
        raise UserError(f"{what}there is {found}.", where=where)
    for name, tensor in tensors.items():
        known = name.endswith((*WORDS, *POSITIONS)) or DECODERS.fullmatch(name) or "Norm" in name
        if size in tensor.shape and not known and not set(INDIFFERENT) & set(name.split(".")):
            what = f"The tensor '{name}' {list(tensor.shape)} has the vocabulary's size, {size}, and is not known."
            raise UserError(what, where=where, hint="Leave out prune_embeddings.")


def has_positions(tensors: Tensors) -> bool:
    """Tell whether there is a table of positions: rotary and relative ones have none."""
    return any(name.endswith(POSITIONS[0]) for name in tensors)


def cut_tokens(tensors: Tensors, config: Mapping[str, Any], kept: Sequence[int]) -> Tensors:
    """Keep these rows, in this order, of all that goes by token."""
    rows, size = torch.tensor(kept), config["vocab_size"]
    by_token = {name for name in tensors if name.endswith(WORDS) or DECODERS.fullmatch(name)}
    return {name: t[rows] if name in by_token and len(t) == size else t for name, t in tensors.items()}


def cut_positions(tensors: Tensors, config: Mapping[str, Any], length: int) -> tuple[Tensors, dict[str, Any]]:
    """Keep the first `length` positions; families that count from behind the padding's number keep those rows too."""
    if any(name.endswith("distance_embedding.weight") for name in tensors):
        raise UserError("Positions relative to each other ('distance_embedding') are not cut.")
    old = config["max_position_embeddings"]
    new = length + positions_before_first(config)
    cut = dict(tensors)
    for name, tensor in tensors.items():
        if name.endswith(POSITIONS):
            axis = 0 if name.endswith(POSITIONS[0]) else 1
            if tensor.shape[axis] != old:
                raise UserError(f"'{name}' has {tensor.shape[axis]} positions, the config says {old}.")
            cut[name] = tensor.narrow(axis, 0, new)
    changed = {**config, "max_position_embeddings": new}
    if config.get("max_relative_positions", 1) < 1:
        changed["max_relative_positions"] = old  # DeBERTa measures distances by this, or else by the table's length
    return cut, changed


def positions_before_first(config: Mapping[str, Any]) -> int:
    """How many rows of the position table stand before that of a text's first token."""
    return int(config.get("pad_token_id") or 0) + 1 if config["model_type"] in SHIFTED else 0


def _unpickle(path: Path) -> Tensors:
    return dict(torch.load(path, map_location="cpu", weights_only=True))
