"""The tokenizer of a PaddleNLP folder, as files that transformers' AutoTokenizer reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import UserError
from .checkpoint import Checkpoint, read_json

SPECIALS = {
    "vocab.txt": {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"},
    "vocab.json": {"unk": "<unk>", "sep": "</s>", "pad": "<pad>", "cls": "<s>", "mask": "<mask>"},
}
"""PaddleNLP's defaults, for WordPiece and for byte-level BPE."""
COPIED = {
    "vocab.txt": ("do_lower_case", "strip_accents", "tokenize_chinese_chars"),
    "vocab.json": ("add_prefix_space",),
}
"""Settings that mean the same in both libraries."""


def make_tokenizer(checkpoint: Checkpoint, vocab_size: int, max_length: int) -> tuple[dict[str, bytes], int]:
    """Check the vocabulary against the table of `vocab_size` rows; give the files' contents and the count of tokens."""
    folder = checkpoint.folder
    kinds = ("vocab.txt", "vocab.json") if checkpoint.family == "roberta" else ("vocab.txt",)
    kind = next((name for name in kinds if (folder / name).is_file()), None)
    if kind is None:
        hint = "Copy the tokenizer's files there: tokenizer.save_pretrained(…) writes them."
        raise UserError(f"The folder has no {' and no '.join(kinds)}.", where=str(folder), hint=hint)
    settings = _settings(folder)
    contents = {kind: (folder / kind).read_bytes()}
    tokens = _wordpieces(folder / kind) if kind == "vocab.txt" else _byte_level(folder, contents)
    if (last := max(tokens.values(), default=-1)) >= vocab_size:
        what = f"The vocabulary numbers its tokens up to {last}, the model's table has {vocab_size} rows."
        hint = "They do not belong together: copy the vocabulary that the model was trained with."
        raise UserError(what, where=str(folder / kind), hint=hint)
    ours: dict[str, Any] = {"tokenizer_class": "BertTokenizer" if kind == "vocab.txt" else "RobertaTokenizer"}
    if kind == "vocab.txt":
        ours["do_lower_case"] = True  # PaddleNLP's default
    ours |= {key: settings[key] for key in COPIED[kind] if settings.get(key) is not None}
    for role, default in SPECIALS[kind].items():
        token = _text(settings.get(f"{role}_token", default))
        if token not in tokens:
            what = f"The vocabulary lacks the {role} token '{token}'."
            raise UserError(what, where=str(folder / kind), hint="Name the right one in tokenizer_config.json.")
        ours[f"{role}_token"] = token
    ours["model_max_length"] = max_length
    contents["tokenizer_config.json"] = (json.dumps(ours, ensure_ascii=False, indent=2) + "\n").encode("utf-8")
    return contents, len(tokens)


def _settings(folder: Path) -> dict[str, Any]:
    """PaddleNLP's settings, those refused that would change how texts are split."""
    place = folder / "tokenizer_config.json"
    settings = read_json(place) if place.is_file() else {}
    if settings.get("tokenizer_class") == "ErnieTinyTokenizer":
        what = "ErnieTinyTokenizer (words by a dictionary, then SentencePiece) is not offered: transformers has none."
        raise UserError(what, where=str(place), hint="Take a model with a WordPiece vocabulary.")
    if settings.get("do_basic_tokenize", True) is not True or settings.get("never_split"):
        what = "'do_basic_tokenize' must be true and 'never_split' empty: transformers' tokenizers know nothing else."
        raise UserError(what, where=str(place), hint="Change them, and see what the model then scores.")
    added = folder / "added_tokens.json"
    if added.is_file() and read_json(added):
        what = "Tokens were added to the vocabulary, which is not offered."
        raise UserError(what, where=str(added), hint="Put them at the end of vocab.txt and remove this file.")
    return settings


def _wordpieces(place: Path) -> dict[str, int]:
    """Number the lines, as both libraries do: of tokens that come twice the last one counts."""
    with place.open(encoding="utf-8") as file:
        try:
            return {line.rstrip("\n"): number for number, line in enumerate(file)}
        except UnicodeDecodeError as error:
            raise UserError(f"The vocabulary is not UTF-8: {error}.", where=str(place), hint="Copy it anew.") from None


def _byte_level(folder: Path, contents: dict[str, bytes]) -> dict[str, int]:
    merges = folder / "merges.txt"
    if not merges.is_file():
        what = "The folder has vocab.json but no merges.txt."
        raise UserError(what, where=str(folder), hint="Copy it there: tokenizer.save_pretrained(…) writes both.")
    contents["merges.txt"] = merges.read_bytes()
    tokens = read_json(folder / "vocab.json")
    if not all(type(number) is int for number in tokens.values()):
        what = "The vocabulary must give every token a number."
        raise UserError(what, where=str(folder / "vocab.json"), hint="Copy it anew.")
    return tokens


def _text(token: Any) -> str:
    """A special token is written as text, or as an object around it."""
    return str(token.get("content")) if isinstance(token, Mapping) else str(token)
