"""What a configuration file comes to: options with the words that they would be typed with, and notes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from ...errors import UserError
from .document import Entry


@dataclass(frozen=True)
class Setting:
    """An option, what would be typed after its flag, and where it comes from: file and line with the key, the key."""

    option: str
    words: tuple[str, ...]
    where: str
    key: str


@dataclass(frozen=True)
class Config:
    """A file's settings by option. `left_out`: keys that have no effect here, with their lines."""

    path: str
    settings: Mapping[str, Setting] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    def without(self, names: Mapping[str, str]) -> Config:
        """The same without some options; of each the reason."""
        gone = {one.key: names[name] for name, one in self.settings.items() if name in names}
        rest = {name: one for name, one in self.settings.items() if name not in names}
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


class Gathered:
    """Settings and left-out keys while a file is read."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.settings: dict[str, Setting] = {}
        self.left_out: dict[str, str] = {}

    def where(self, key: str, entry: Entry) -> str:
        """File, line and key, for messages."""
        return f"{self.path}:{entry.line}, {key}"

    def put(self, option: str, entry: Entry, key: str) -> None:
        """Set an option to what stands there; nothing sets nothing."""
        words = self.words(entry, key)
        if words is not None:
            self.settings[option] = Setting(option, words, self.where(key, entry), key)

    def say(self, option: str, word: str, entry: Entry, key: str) -> None:
        """Set an option to a word that stands for what stands there."""
        self.settings[option] = Setting(option, (word,), self.where(key, entry), key)

    def leave(self, key: str, reason: str) -> None:
        """Name a key that has no effect."""
        self.left_out[key] = reason

    def words(self, entry: Entry, key: str) -> tuple[str, ...] | None:
        """The words that a command line would have; None where there is nothing."""
        if isinstance(entry.value, tuple):
            if any(not isinstance(one.value, str | None) for one in entry.value):
                raise UserError("The list must hold words or numbers.", where=self.where(key, entry))
            return tuple(one.text or "None" for one in entry.value)
        if isinstance(entry.value, Mapping):
            raise UserError("This must be a value or a list, not keys of its own.", where=self.where(key, entry))
        return None if entry.text is None else (entry.text,)

    def one(self, entry: Entry, key: str) -> str | None:
        """The one word that stands there."""
        words = self.words(entry, key)
        if words is not None and len(words) != 1:
            raise UserError("This must be one value.", where=self.where(key, entry))
        return None if words is None else words[0]

    def config(self) -> Config:
        """What was gathered."""
        return Config(self.path, self.settings, self.left_out)
