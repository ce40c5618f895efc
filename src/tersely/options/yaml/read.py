"""Tell a file's shape and read it: PaddleNLP's `config.yml`, AutoCompression's sections, or options by their names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from ...data.locate import plain, task_of
from ...errors import UserError, closest, nearest
from ...tasks import facts_of, heads, settings_of
from ...tasks.options import TaskOptions
from ..compress import AUTO
from . import automatic
from .document import Config, Item, read_document

DEFAULTS = "DefaultArgs"
SECTIONS: dict[str, tuple[str, ...]] = {
    DEFAULTS: (),
    **{head: tuple(facts_of(task).kinds) for head, task in heads().items()},
}
"""Keys of the top level of PaddleNLP's file, and what `--task` calls them."""
BOTH = {"batch_size": ("per_device_train_batch_size", "per_device_eval_batch_size")}
"""Keys that stand for two options."""
TASK_OPTIONS = {declared.name for declared in fields(TaskOptions)} - {"task"}


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
    config = Config(str(path))
    document = {key: Item(key, entry, config) for key, entry in read_document(path).items()}
    sections = {**SECTIONS, **automatic.SECTIONS}
    parts = {key: item for key, item in document.items() if key in sections}
    _read_options({key: item for key, item in document.items() if key not in sections}, asker, sections)
    if automatic.SECTIONS.keys() & parts.keys():
        if odd := sorted(SECTIONS.keys() & parts.keys()):
            first = sorted(automatic.SECTIONS.keys() & parts.keys())[0]
            what = f"'{odd[0]}' and '{first}' are of two kinds of files."
            raise UserError(what, where=f"{path}:{document[odd[0]].entry.line}", hint="Use one of them.")
        automatic.read_sections(parts, config)
        if "strategy" in asker.options and "strategy" not in config.settings:  # AutoCompression then finds one itself
            next(iter(parts.values())).put("strategy", AUTO)
        # What a section stands for may be something that the asker does not take.
        untaken = [option for option in config.settings if option not in asker.options]
        return config.without({option: f"there is no '--{option}' here" for option in untaken})
    if not parts:
        return config
    groups = [parts[DEFAULTS].inner()] if DEFAULTS in parts else []
    section, dataset = _chosen(parts, asker, config.path)
    for group in [*groups, dataset.inner()] if dataset is not None else groups:
        _read_options(group, asker)
    return _fitting(config, section)


def _read_options(items: Mapping[str, Item], asker: Asker, sections: Iterable[str] = ()) -> None:
    """Read options by their names; those that are read later win."""
    for name, item in items.items():
        if name in asker.idle:
            item.leave(asker.idle[name])
        elif name in BOTH:
            for option in BOTH[name]:
                item.put(option)
        elif name in asker.options or name in asker.aliases:
            item.put(asker.aliases.get(name, name))
        elif asker.lenient:
            item.leave("there is no such option")
        else:
            close = closest(name, [*asker.options, *BOTH, *sections])
            hint = f"Did you mean '{close}'?" if close else "The options are those of the command line, without '--'."
            raise item.error(f"There is no option '{name}'.", hint)


def _chosen(parts: Mapping[str, Item], asker: Asker, path: str) -> tuple[str | None, Item | None]:
    """The data set that is meant, and its section in PaddleNLP's file.

    Of several data sets the one that `--dataset` names; a file with one data set, or with none, needs no name.
    """
    found = [
        (section, name, item)
        for section, group in parts.items()
        if section != DEFAULTS and (asker.task is None or asker.task in SECTIONS[section])
        for name, item in group.inner().items()
    ]
    fitting = [part for part in found if asker.dataset is None or _same(part[1], asker.dataset)]
    if len(fitting) == 1:
        return fitting[0][0], fitting[0][2]
    if not found:
        return None, None
    if not fitting:
        hint = nearest(task_of(str(asker.dataset)), [task_of(name) for _, name, _ in found])
        raise UserError(f"There is no data set '{asker.dataset}' in the file.", where=path, hint=hint)
    names = ", ".join(name for _, name, _ in fitting)
    hint = "Name one with --dataset." if asker.dataset is None else "Name its kind with --task."
    raise UserError(f"The file holds several data sets: {names}.", where=path, hint=hint)


def _same(name: str, dataset: str) -> bool:
    """Whether a name in the file is the data set: with or without its family, or a folder that is called so."""
    return plain(task_of(name)) in (plain(task_of(dataset)), plain(Path(dataset).name))


def _fitting(config: Config, section: str | None) -> Config:
    """Leave out what is said for all data sets and is nothing to this kind of task; metrics by our names."""
    metric = config.settings.get("metric")
    if metric is not None and len(metric.words) == 1:
        config.settings["metric"] = replace(metric, words=(metric.words[0].lower(),))
    if section is None:
        return config
    task = heads()[section]
    # PaddleNLP has a metric for a kind of task where there are several kinds of answers.
    known = settings_of(task) - (set() if len(facts_of(task).kinds) > 1 else {"metric"})
    general = [name for name, setting in config.settings.items() if setting.key.startswith(f"{DEFAULTS}.")]
    return config.without({name: f"it is nothing to {section}" for name in general if name in TASK_OPTIONS - known})
