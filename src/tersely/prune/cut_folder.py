"""The folder of a model whose vocabulary was cut: weights, config, tokenizer and notes that fit each other."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import __version__, tasks
from ..errors import UserError
from ..models.folder import NOTES, read_encoder
from ..tasks import Task
from .choose_tokens import SmallerTokenizer
from .tables import Tensors, renumber, write_weights

CARRIED = (".json", ".md", ".py", ".txt", ".jinja")
"""Kinds of small files that go along as they are, unless they are of those below."""
REPLACED = {
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "added_tokens.json", NOTES,
    "vocab.txt", "vocab.json", "merges.txt", "model.safetensors.index.json", "pytorch_model.bin.index.json",
    "trainer_state.json", "all_results.json", "train_results.json", "eval_results.json",
}  # fmt: skip
"""Files that number tokens, name weights, or tell of the model as it was. What is not written anew is left out."""


def write_folder(
    scratch: Path, source: Path, tensors: Tensors, config: Mapping[str, Any], smaller: SmallerTokenizer, task: Task
) -> None:
    """Write everything into `scratch`, then read the tokenizer back as transformers does: it must be the one meant."""
    for path in sorted(source.iterdir()):
        if path.is_file() and path.suffix in CARRIED and path.name not in REPLACED:
            shutil.copyfile(path, scratch / path.name)
    write_weights(scratch / "model.safetensors", tensors)
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
    asked = _read(source, "tokenizer")
    content = {**smaller.content, "truncation": asked.get("truncation"), "padding": asked.get("padding")}
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
        text = "".join(f"{piece}\n" for piece in content["model"]["vocab"])
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
