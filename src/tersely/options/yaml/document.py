"""A YAML file as texts with their lines, and what it comes to: options with the words that set them on a command line.

YAML's own reading would make `off` False, `3e-5` a text and `1_000` a number; a command line has texts only, and so
has this. What a value means is for the option that it is given to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...errors import UserError, existing

NULL, MERGE = "tag:yaml.org,2002:null", "tag:yaml.org,2002:merge"


@dataclass(frozen=True)
class Entry:
    """A value and the line that it begins on: a text, nothing, several entries, or entries by their keys."""

    value: Any
    line: int

    @property
    def text(self) -> str | None:
        """The text; None where there is nothing, which Python's users write as None."""
        return None if self.value is None or self.value == "None" else str(self.value)


@dataclass(frozen=True)
class FileOption:
    """An option that a file sets: the words that would follow its flag, file and line of the key, the key."""

    option: str
    words: tuple[str, ...]
    where: str
    key: str


@dataclass(frozen=True)
class Config:
    """A file's settings by option. `left_out`: keys that have no effect here, with their lines."""

    path: str
    settings: dict[str, FileOption] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def without(self, names: Mapping[str, str]) -> Config:
        """The same without some options; of each the reason."""
        gone = {setting.key: names[name] for name, setting in self.settings.items() if name in names}
        rest = {name: setting for name, setting in self.settings.items() if name not in names}
        return replace(self, settings=rest, left_out={**self.left_out, **gone})

    def notes(self) -> list[str]:
        """A line for each reason, with the keys that are left out for it.

        >>> Config("a.yml", {}, {"Global.params_filename": "a Paddle graph"}).notes()
        ['a.yml: without effect here: Global.params_filename (a Paddle graph).']
        """
        reasons: dict[str, list[str]] = {}
        for key, reason in self.left_out.items():
            reasons.setdefault(reason, []).append(key)
        return [f"{self.path}: without effect here: {', '.join(keys)} ({why})." for why, keys in reasons.items()]

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Give a message about an option the place in the file that set it."""
        try:
            yield
        except UserError as error:
            if error.where is None and error.option is not None and error.option in self.settings:
                error.where = self.settings[error.option].where
            raise


@dataclass(frozen=True)
class Item:
    """What stands under a key while a file is read; settings go to the file's `config`."""

    key: str
    entry: Entry
    config: Config

    def put(self, option: str, *words: str) -> None:
        """Set an option to some words, or else to what stands there; nothing sets nothing."""
        found = words or self.words
        if found is not None:
            self.config.settings[option] = FileOption(option, found, self.where, self.key)

    def leave(self, reason: str) -> None:
        """Name the key as one that has no effect."""
        self.config.left_out[self.key] = reason

    def error(self, what: str, hint: str | None = None) -> UserError:
        """Blame what stands there."""
        return UserError(what, where=self.where, hint=hint)

    @property
    def where(self) -> str:
        """File, line and key, for messages."""
        return f"{self.config.path}:{self.entry.line}, {self.key}"

    @property
    def words(self) -> tuple[str, ...] | None:
        """The words that a command line would have; None where there is nothing."""
        value = self.entry.value
        if isinstance(value, tuple):
            if any(not isinstance(part.value, str | None) for part in value):
                raise self.error("The list must hold words or numbers.")
            return tuple(part.text or "None" for part in value)
        if isinstance(value, Mapping):
            raise self.error("This must be a value or a list, not keys of its own.")
        return None if self.entry.text is None else (self.entry.text,)

    @property
    def word(self) -> str | None:
        """The only word that stands there."""
        words = self.words
        if words is not None and len(words) != 1:
            raise self.error("This must be one value.")
        return None if words is None else words[0]

    def inner(self) -> dict[str, Item]:
        """What stands under the keys inside, none where nothing stands there."""
        if not isinstance(self.entry.value, Mapping | None):
            raise self.error("This must hold keys and values.")
        return {
            name: Item(f"{self.key}.{name}", entry, self.config) for name, entry in (self.entry.value or {}).items()
        }


def read_document(path: str | Path) -> Mapping[str, Entry]:
    """Read a file's top level. Nothing in it is executed or constructed."""
    import yaml

    try:
        text = existing(path, "configuration file").read_text(encoding="utf-8-sig")
        top = yaml.compose(text, Loader=yaml.SafeLoader)
    except UnicodeDecodeError as error:
        raise UserError(f"The file is not UTF-8 (byte {error.start}).", where=str(path)) from None
    except OSError as error:
        raise UserError(f"The file cannot be read: {error.strerror}.", where=str(path)) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        reason = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise UserError(f"The file is not YAML: {reason}.", where=where) from None
    entries = None if top is None else _Reading(str(path)).entry(top).value
    if not entries or not isinstance(entries, Mapping):
        hint = "Write one a line, such as 'strategy: ptq'."
        raise UserError("The file holds no options.", where=str(path), hint=hint)
    return entries


class _Reading:
    """Turns YAML's nodes to entries. A node that is named again (`*name`) is turned once: it may be named often."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.known: dict[int, Entry] = {}
        self.open: set[int] = set()

    def entry(self, node: Any) -> Entry:
        """The entry of a node."""
        if id(node) in self.open:
            raise UserError("The value holds itself.", where=f"{self.path}:{node.start_mark.line + 1}")
        if id(node) not in self.known:
            self.open.add(id(node))
            self.known[id(node)] = Entry(self._value(node), node.start_mark.line + 1)
            self.open.remove(id(node))
        return self.known[id(node)]

    def _value(self, node: Any) -> Any:
        if node.id == "scalar":
            return None if node.tag == NULL else node.value
        if node.id == "sequence":
            return tuple(self.entry(part) for part in node.value)
        found: dict[str, Entry] = {}
        merged: dict[str, Entry] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.tag == MERGE:
                for part in value.value if value.id == "sequence" else [value]:
                    entries = self.entry(part).value
                    merged = {**entries, **merged} if isinstance(entries, Mapping) else merged
                continue
            if key.id != "scalar":
                raise UserError("A key must be a word.", where=f"{self.path}:{line}")
            if key.value in found:
                raise UserError(f"The key '{key.value}' stands there twice.", where=f"{self.path}:{line}")
            found[key.value] = Entry(self.entry(value).value, line)
        return {**merged, **found}
