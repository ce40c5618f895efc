"""Tell a file's shape and read it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import UserError, closest
from . import automatic, paddlenlp
from .document import Entry, read_document
from .setting import Config, Gathered


@dataclass(frozen=True)
class Asker:
    """Who reads a file: the options that it takes, those that mean nothing to it, and which part of a file it wants."""

    options: Collection[str]
    idle: Mapping[str, str] = field(default_factory=dict)
    """Options that a file may hold though they have no effect, with the reason."""
    dataset: str | None = None
    task: str | None = None
    lenient: bool = False
    """Unknown options are left out instead of refused."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Other names of options that a file may use."""


def read_config(path: str | Path, asker: Asker) -> Config:
    """Read a file in any of three shapes: PaddleNLP's `config.yml`, AutoCompression's, or options by their names.

    Unknown keys are refused with the nearest known one; keys that cannot mean anything here are left out and named.
    """
    document = read_document(path)
    into = Gathered(str(path))
    sections = {**paddlenlp.SECTIONS, **automatic.SECTIONS}
    parts = {key: entry for key, entry in document.items() if key in sections}
    read_options({key: entry for key, entry in document.items() if key not in sections}, "", asker, into, sections)
    if automatic.SECTIONS.keys() & parts.keys():
        if odd := sorted(paddlenlp.SECTIONS.keys() & parts.keys()):
            first = sorted(automatic.SECTIONS.keys() & parts.keys())[0]
            what = f"'{odd[0]}' and '{first}' are of two kinds of files."
            raise UserError(what, where=f"{path}:{document[odd[0]].line}", hint="Use one of them.")
        automatic.read_sections(parts, into)
        _leave_idle(asker, into)
    elif parts:
        section, chosen = paddlenlp.choose(parts, asker.dataset, asker.task, into)
        for key, entries in chosen:
            read_options(entries, key, asker, into)
        paddlenlp.fit(section, into)
    return into.config()


def read_options(
    entries: Mapping[str, Entry], above: str, asker: Asker, into: Gathered, sections: Collection[str] = ()
) -> None:
    """Read options by their names; those that are read later win."""
    for name, entry in entries.items():
        key = f"{above}.{name}" if above else name
        if name in asker.idle:
            into.leave(key, asker.idle[name])
        elif name in paddlenlp.BOTH:
            for option in paddlenlp.BOTH[name]:
                into.put(option, entry, key)
        elif name in asker.options or name in asker.aliases:
            into.put(asker.aliases.get(name, name), entry, key)
        elif asker.lenient:
            into.leave(key, "there is no such option")
        else:
            close = closest(name, [*asker.options, *paddlenlp.BOTH, *sections])
            hint = f"Did you mean '{close}'?" if close else "The options are those of the command line, without '--'."
            raise UserError(f"There is no option '{name}'.", where=into.where(key, entry), hint=hint)


def _leave_idle(asker: Asker, into: Gathered) -> None:
    """What a section stands for may be something that the asker does not take."""
    for option, setting in list(into.settings.items()):
        if option not in asker.options:
            into.leave(setting.key, f"there is no '--{option}' here")
            del into.settings[option]
