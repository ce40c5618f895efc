"""A model folder whose tables go by token and by position: weights, config and tokenizer, cut to match each other."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import transformers

from .. import __version__, tasks
from ..errors import UserError
from ..models.families.family import SHIFTED
from ..models.folder import NOTES, read_encoder
from ..tasks import Task
from .smaller_tokenizer import SmallerTokenizer

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


CARRIED = (".json", ".md", ".py", ".txt", ".jinja")
"""Kinds of small files that go along as they are, unless they are of those below."""
REPLACED = {
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "added_tokens.json", NOTES,
    "vocab.txt", "vocab.json", "merges.txt", "model.safetensors.index.json", "pytorch_model.bin.index.json",
    "trainer_state.json", "all_results.json", "train_results.json", "eval_results.json",
}  # fmt: skip
"""Files that number tokens, name weights, or tell of the model as it was. What is not written anew is left out."""


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
        return [new(number) for number in value] if isinstance(value, list) else numbers.get(value, value)

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


def write_folder(
    scratch: Path, source: Path, tensors: Tensors, config: Mapping[str, Any], smaller: SmallerTokenizer, task: Task
) -> None:
    """Write everything into `scratch`, then read the tokenizer back as transformers does: it must be the one meant."""
    for path in sorted(source.iterdir()):
        if path.is_file() and path.suffix in CARRIED and path.name not in REPLACED:
            shutil.copyfile(path, scratch / path.name)
    apart = {name: tensor.clone().contiguous() for name, tensor in tensors.items()}  # some share memory
    (scratch / "model.safetensors").write_bytes(safetensors.torch.save(apart, metadata={"format": "pt"}))
    _write_json(scratch / "config.json", config)
    if (source / "generation_config.json").is_file():
        _write_json(scratch / "generation_config.json", renumber(_read(source, "generation_config"), smaller.numbers))
    _write_tokenizer(scratch, source, smaller, task.max_seq_length)
    _read_back(scratch, source, config, smaller)
    notes = _read(source, Path(NOTES).stem)
    notes.pop("score", None)  # it was another model's
    notes.pop("run", None)
    files = sorted({path.name for path in scratch.iterdir()})
    _write_json(scratch / NOTES, {**notes, "task": tasks.to_json(task), "tersely_version": __version__, "files": files})


def _write_tokenizer(scratch: Path, source: Path, smaller: SmallerTokenizer, length: int) -> None:
    numbers = smaller.numbers
    settings = _read(source, "tokenizer")
    content = {**smaller.content, "truncation": settings.get("truncation"), "padding": settings.get("padding")}
    if content["truncation"]:
        content["truncation"]["max_length"] = min(content["truncation"]["max_length"], length)
    if content["padding"]:
        content["padding"]["pad_id"] = numbers.get(content["padding"]["pad_id"], smaller.encoder.pad_id)
        if isinstance(content["padding"]["strategy"], dict):
            content["padding"]["strategy"] = {"Fixed": min(content["padding"]["strategy"]["Fixed"], length)}
    _write_json(scratch / "tokenizer.json", content)
    settings = renumber(_read(source, "tokenizer_config"), numbers)
    settings["model_max_length"] = min(settings.get("model_max_length", length), length)
    if "added_tokens_decoder" in settings:
        old = settings["added_tokens_decoder"].items()
        settings["added_tokens_decoder"] = {str(numbers[int(number)]): token for number, token in old}
    _write_json(scratch / "tokenizer_config.json", settings)
    if (source / "added_tokens.json").is_file():
        old = _read(source, "added_tokens").items()
        _write_json(
            scratch / "added_tokens.json", {token: numbers[number] for token, number in old if number in numbers}
        )
    if (source / "vocab.txt").is_file() and content["model"]["type"] == "WordPiece":
        text = "".join(f"{token}\n" for token in content["model"]["vocab"])
        (scratch / "vocab.txt").write_text(text, encoding="utf-8")


def _read_back(scratch: Path, source: Path, config: Mapping[str, Any], smaller: SmallerTokenizer) -> None:
    """Some of transformers' tokenizer classes number tokens by rules of their own, which a cut can break."""
    try:
        if json.loads(read_encoder(scratch, config).to_json()) == smaller.content:
            return
    except UserError:
        pass  # it names the scratch folder, which is soon gone
    kind = _read(source, "tokenizer_config").get("tokenizer_class")
    raise UserError(
        f"transformers' '{kind}' reads the smaller vocabulary otherwise than it was written.",
        where=str(source / "tokenizer_config.json"),
        hint="Set 'tokenizer_class' to PreTrainedTokenizerFast, or leave out prune_embeddings.",
    )


def _read(folder: Path, name: str) -> dict[str, Any]:
    place = folder / f"{name}.json"
    return dict(json.loads(place.read_text(encoding="utf-8"))) if place.is_file() else {}


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def _unpickle(path: Path) -> Tensors:
    return dict(torch.load(path, map_location="cpu", weights_only=True))
