"""PaddleNLP's `config.yml`: options for all data sets under `DefaultArgs`, those of each under its kind of task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

from ...data.locate import plain, task_of
from ...errors import UserError, nearest
from ...tasks import facts_of, heads, settings_of
from ...tasks.options import TaskOptions
from .document import Entry
from .setting import Gathered

DEFAULTS = "DefaultArgs"
SECTIONS: dict[str, tuple[str, ...]] = {
    DEFAULTS: (),
    **{head: tuple(facts_of(task).kinds) for head, task in heads().items()},
}
"""Keys of the top level, and what `--task` calls them."""
BOTH = {"batch_size": ("per_device_train_batch_size", "per_device_eval_batch_size")}
"""Keys that stand for two options."""
TASK_OPTIONS = {field.name for field in fields(TaskOptions)} - {"task"}

Parts = list[tuple[str, Mapping[str, Entry]]]


def choose(
    parts: Mapping[str, Entry], dataset: str | None, task: str | None, into: Gathered
) -> tuple[str | None, Parts]:
    """The section that is meant, and the groups of options that count, the more special later.

    Of several data sets the one that `--dataset` names; a file with one data set, or with none, needs no name.
    """
    chosen: Parts = [(DEFAULTS, _inner(parts[DEFAULTS], DEFAULTS, into))] if DEFAULTS in parts else []
    named = [
        (section, name, entry)
        for section, group in parts.items()
        if section != DEFAULTS and (task is None or task in SECTIONS[section])
        for name, entry in _inner(group, section, into).items()
    ]
    if not named:
        return None, chosen
    fitting = named
    if dataset is not None:
        fitting = [one for one in named if _same(one[1], dataset)]
        if not fitting:
            hint = nearest(task_of(dataset), [task_of(name) for _, name, _ in named])
            raise UserError(f"There is no data set '{dataset}' in the file.", where=into.path, hint=hint)
    if len(fitting) > 1:
        names = ", ".join(name for _, name, _ in fitting)
        hint = "Name one with --dataset." if dataset is None else "Name its kind with --task."
        raise UserError(f"The file holds several data sets: {names}.", where=into.path, hint=hint)
    section, name, entry = fitting[0]
    key = f"{section}.{name}"
    return section, [*chosen, (key, _inner(entry, key, into))]


def fit(section: str | None, into: Gathered) -> None:
    """Leave out what is said for all data sets and is nothing to this kind of task; metrics by our names."""
    known = _options_of(section) if section is not None else set()
    for option, setting in list(into.settings.items()):
        foreign = section is not None and option in TASK_OPTIONS and option not in known
        if foreign and setting.key.startswith(f"{DEFAULTS}."):
            into.leave(setting.key, f"it is nothing to {section}")
            del into.settings[option]
        elif option == "metric" and len(setting.words) == 1:
            into.settings[option] = replace(setting, words=(setting.words[0].lower(),))


def _options_of(section: str) -> set[str]:
    """What PaddleNLP has for a kind of task: a metric where there are several kinds of answers."""
    task = heads()[section]
    return settings_of(task) - (set() if len(facts_of(task).kinds) > 1 else {"metric"})


def _inner(entry: Entry, key: str, into: Gathered) -> Mapping[str, Entry]:
    entries = entry.entries
    if entries is None:
        raise UserError("This must hold keys and values.", where=into.where(key, entry))
    return entries


def _same(name: str, dataset: str) -> bool:
    """Whether a name in the file is the data set: with or without its family, or a folder that is called so."""
    return plain(task_of(name)) in (plain(task_of(dataset)), plain(Path(dataset).name))
