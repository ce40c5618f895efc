"""A YAML file as texts with their lines: what a value means is for the option that it is given to.

YAML's own reading would make `off` False, `3e-5` a text and `1_000` a number; a command line has texts only, and so
has this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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

    @property
    def entries(self) -> Mapping[str, Entry] | None:
        """The entries by their keys, none where nothing stands there; None where it is something else."""
        if self.value is None:
            return {}
        return self.value if isinstance(self.value, Mapping) else None


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
    entries = _Reading(str(path)).entry(top).entries if top is not None else None
    if not entries:
        raise UserError(
            "The file holds no options.", where=str(path), hint="Write one a line, such as 'strategy: ptq'."
        )
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
            return tuple(self.entry(one) for one in node.value)
        found: dict[str, Entry] = {}
        merged: dict[str, Entry] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.tag == MERGE:
                for one in value.value if value.id == "sequence" else [value]:
                    merged = {**(self.entry(one).entries or {}), **merged}
                continue
            if key.id != "scalar":
                raise UserError("A key must be a word.", where=f"{self.path}:{line}")
            if key.value in found:
                raise UserError(f"The key '{key.value}' stands there twice.", where=f"{self.path}:{line}")
            found[key.value] = Entry(self.entry(value).value, line)
        return {**merged, **found}
