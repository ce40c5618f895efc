"""CoNLL columns: a word and its tag per line, a blank line between sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from sys import intern
from typing import Any

from ..errors import UserError
from .rows import bare_lines, fields_of

COMMENT = re.compile(r"# *(\w+ *=|id |newdoc|newpar)")
DOCUMENT = "-DOCSTART-"


def records(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    r"""Give (line of the first word, {"words", "tags"}) per sentence.

    The word is the first column, the tag the last. A file of one column gives words only. If the first row has a
    tab, only tabs separate, so that a word may be a space.

    >>> import tempfile; file = Path(tempfile.mkdtemp()) / "a.conll"
    >>> _ = file.write_text("EU NNP B-ORG\nrejects VBZ O\n\nPeter NNP B-PER\n")
    >>> list(records(file))[1]
    (4, {'words': ['Peter'], 'tags': ['B-PER']})
    """
    words: list[str] = []
    tags: list[str] = []
    start = width = 0
    tabs: bool | None = None
    for number, line in bare_lines(path):
        if not line.strip(" \t") or line.startswith(DOCUMENT):
            if words:
                yield start, sentence(words, tags, width)
                words, tags = [], []
            continue
        if tabs is None:
            if is_comment(line, fields_of(line, "\t" in line), 0):
                continue
            tabs = "\t" in line
        fields = fields_of(line, tabs)
        if not words and line.startswith("#") and is_comment(line, fields, width):
            continue
        width = width or len(fields)
        if len(fields) != width:
            raise wrong_width(fields, width, tabs, f"{path}:{number}")
        if not words:
            start = number
        word, tag = fields[0], intern(fields[-1].strip(" "))
        if not word or (not tag and width > 1):
            what = "The tag stands without its word." if not word else f"The word '{word}' has no tag."
            raise UserError(what, where=f"{path}:{number}", hint="Every line needs a word and a tag.")
        words.append(word)
        tags.append(tag)
    if words:
        yield start, sentence(words, tags, width)
    if not width:
        raise UserError("The file holds no words.", where=str(path))


def sentence(words: list[str], tags: list[str], width: int) -> Mapping[str, Any]:
    """Make the record; a file of one column has no tags."""
    return {"words": words, "tags": tags} if width > 1 else {"words": words}


def is_comment(line: str, fields: list[str], width: int) -> bool:
    """Tell '# text = …' before a sentence from the word '#': a comment looks like one, or has other columns.

    Before the width of the file is known, '#' with one more field is a row.
    """
    if not line.startswith("# "):
        return False
    return bool(COMMENT.match(line)) or (len(fields) != width if width else len(fields) != 2)


def wrong_width(fields: list[str], width: int, tabs: bool, where: str) -> UserError:
    """Say what is missing from a row, or what is too much."""
    if len(fields) == 1 and width > 1:
        hint = "Every line needs a word and a tag, or none does."
        return UserError(f"The word '{fields[0]}' has no tag.", where=where, hint=hint)
    hint = "Check for a stray tab." if tabs else "A word with a blank in it needs tabs between columns."
    return UserError(f"The row has {len(fields)} columns, {width} expected.", where=where, hint=hint)
