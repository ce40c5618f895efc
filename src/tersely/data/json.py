"""json: a list of objects, {"data": [...]}, one object per line, SQuAD's articles."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import UserError
from . import squad
from .rows import beginning, lines, read_text

BLANK = " \t\r\n"
SURROGATE = "\\ud"


def records(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    r"""Give (line where it starts, object); lists and `{"data": [...]}` are held in memory, json lines are not.

    >>> import tempfile; file = Path(tempfile.mkdtemp()) / "a.json"
    >>> _ = file.write_text('[{"text": "good"},\n {"text": "bad"}]')
    >>> list(records(file))
    [(1, {'text': 'good'}), (2, {'text': 'bad'})]
    """
    if is_lines(path):
        yield from line_records(path)
        return
    text = read_text(path)
    suspect = SURROGATE in text.lower()
    line = counted = count = 0
    articles: list[tuple[int, Mapping[str, Any]]] = []
    for offset, value in elements(text, str(path)):
        line, counted = line + text.count("\n", counted, offset), offset
        value = checked(value, path, line + 1, suspect)
        if isinstance(value.get("paragraphs"), list):
            articles.append((offset, value))
        else:
            yield line + 1, value
        count += 1
    if articles:
        yield from squad.questions(articles, text, str(path))
    if not count:
        raise UserError("The file holds no rows.", where=str(path))


def line_records(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Give (line, object) of a file with one object per line; blank lines are passed over."""
    for number, line in lines(path):
        if not line.strip(BLANK):
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise broken(error, path, number) from error
        yield number, checked(value, path, number, SURROGATE in line.lower())


def is_lines(path: Path) -> bool:
    """Tell json lines in a .json file: the first line is an object by itself, and no `data` list is in it."""
    first, _, rest = beginning(path, 1 << 24).lstrip(BLANK).partition("\n")
    if not first.startswith("{"):
        return False
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        # Either an object that goes on below, or a spoilt line among others, which will be named as such.
        return first.rstrip(BLANK).endswith("}") and rest.lstrip(BLANK).startswith("{")
    return not isinstance(value.get("data"), list)


def elements(text: str, source: str) -> Iterator[tuple[int, Any]]:
    """Give (offset, element) of the list that the text is, or that stands under its key `data`."""
    decoder = json.JSONDecoder()
    at = past_blanks(text, 0)
    try:
        within = text[at : at + 1] == "{"
        if within:
            at = list_under_data(text, at, decoder, source)
        elif text[at : at + 1] != "[":
            raise UserError("The file must hold a list of objects.", where=source, hint='[{"text": …, "label": …}, …]')
        at = past_blanks(text, at + 1)
        while text[at : at + 1] != "]":
            value, end = decoder.raw_decode(text, at)
            yield at, value
            at = past_blanks(text, end)
            if text[at : at + 1] == ",":
                at = past_blanks(text, at + 1)
            elif text[at : at + 1] != "]":
                raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
        check_rest(text, at + 1, within)
    except (ValueError, RecursionError) as error:
        raise broken(error, source, None) from error


def list_under_data(text: str, at: int, decoder: json.JSONDecoder, source: str) -> int:
    """Find where the list under the key `data` of the object at `at` begins."""
    at = past_blanks(text, at + 1)
    while text[at : at + 1] != "}":
        key, end = decoder.raw_decode(text, at)
        at = past_blanks(text, end)
        if text[at : at + 1] != ":":
            raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
        at = past_blanks(text, at + 1)
        if key == "data" and text[at : at + 1] == "[":
            return at
        at = past_blanks(text, decoder.raw_decode(text, at)[1])
        if text[at : at + 1] == ",":
            at = past_blanks(text, at + 1)
        elif text[at : at + 1] != "}":
            raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
    raise UserError("The object holds no list under 'data'.", where=source, hint="Give a list, or one object per line.")


def check_rest(text: str, at: int, within: bool) -> None:
    """Check what follows the list: the rest of the object that it stands in, or nothing."""
    opening = '{"data":0' if within else "0"
    try:
        json.loads(opening + text[at:])
    except json.JSONDecodeError as error:
        raise json.JSONDecodeError(error.msg, text, at + error.pos - len(opening)) from error


def past_blanks(text: str, at: int) -> int:
    """Step over white space."""
    while text[at : at + 1] and text[at] in BLANK:
        at += 1
    return at


def checked(value: Any, path: Path, line: int, suspect: bool) -> Mapping[str, Any]:
    """Refuse a row that is no object or holds half a character, which no tokenizer takes."""
    where = f"{path}:{line}"
    if not isinstance(value, dict):
        raise UserError(f"The row is not an object but {kind(value)}.", where=where, hint='{"text": …, "label": …}')
    if suspect:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise UserError("The row holds half a character (a lone surrogate \\ud…).", where=where) from error
    return value


def kind(value: Any) -> str:
    """Name a json value's kind."""
    names = {str: "a string", list: "a list", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def broken(error: Exception, source: str | Path, line: int | None) -> UserError:
    """Say where json is corrupt; `line`: of a text that is one line of the file."""
    if isinstance(error, json.JSONDecodeError):
        place = f"{source}:{line or error.lineno}:{error.colno}"
        return UserError(f"The json is corrupt: {error.msg}.", where=place)
    place = str(source) if line is None else f"{source}:{line}"
    if isinstance(error, RecursionError):
        return UserError("The json is nested too deeply.", where=place)
    return UserError(f"The json cannot be read: {error}.", where=place)
