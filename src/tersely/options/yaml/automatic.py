"""AutoCompression's files: sections that ask for methods, each with settings of its own, as options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from pathlib import Path

from ...errors import UserError
from ...strategy import PTQ, QAT
from .document import Entry
from .rules import read
from .sections import METHODS, SECTIONS
from .setting import Gathered

__all__ = ["SECTIONS", "read_sections"]


def read_sections(parts: Mapping[str, Entry], into: Gathered) -> None:
    """Read all sections; those that ask for a method make the strategy."""
    for section, entry in parts.items():
        rules = SECTIONS[section]
        if isinstance(rules, str):
            raise UserError(f"'{section}' is not offered.", where=into.where(section, entry), hint=rules)
        read(rules, entry, section, into)
    _join_dataset(parts, into)
    _join_graph(into)
    _drop_own_teacher(into)
    _aim(into)
    if steps := _steps(parts, into):
        into.say("strategy", "+".join(steps), *_first(parts, METHODS))


def _steps(parts: Mapping[str, Entry], into: Gathered) -> list[str]:
    """The steps that are asked for. A search over calibrations takes `Quantization`'s bits and trains nothing."""
    searches = "HyperParameterOptimization" in parts
    asked = [METHODS[section] for section in parts if section in METHODS]
    steps = list(dict.fromkeys(PTQ if searches and step == QAT else step for step in asked))
    if {PTQ, QAT} <= set(steps):
        key, entry = next((key, parts[key]) for key in parts if METHODS.get(key) == QAT)
        what = f"'{key}' stands beside a section of calibration, of which a strategy has one."
        raise UserError(what, where=into.where(key, entry), hint="Leave one of them out.")
    return steps


def _join_dataset(parts: Mapping[str, Entry], into: Gathered) -> None:
    """A task and its collection are one name: `clue afqmc`."""
    general = parts["Global"].entries or {} if "Global" in parts else {}
    family = general["dataset"].text if "dataset" in general else None
    task = into.settings.get("dataset")
    if task is not None and family is not None:
        into.settings["dataset"] = replace(task, words=(f"{family} {task.words[0]}",))


def _join_graph(into: Gathered) -> None:
    """A graph lies in the model's folder."""
    graph, folder = into.settings.get("input_infer_model_path"), into.settings.get("model_name_or_path")
    if graph is not None and folder is not None:
        joined = str(Path(folder.words[0]) / graph.words[0])
        into.settings["input_infer_model_path"] = replace(graph, words=(joined,))


def _drop_own_teacher(into: Gathered) -> None:
    """The model is its own teacher anyway."""
    teacher, model = into.settings.get("teacher_model_name_or_path"), into.settings.get("model_name_or_path")
    if teacher is not None and model is not None and Path(teacher.words[0]) == Path(model.words[0]):
        del into.settings[teacher.option]


def _aim(into: Gathered) -> None:
    """A score to reach is a drop that is allowed, measured from the score that the model is said to have."""
    target, origin = into.settings.pop("target_metric", None), into.settings.get("origin_metric")
    if target is None:
        return
    if origin is None:
        hint = "Write 'origin_metric' beside it, or say --max_drop instead."
        raise UserError("'target_metric' needs the score to start from.", where=target.where, hint=hint)
    try:
        drop = Decimal(origin.words[0]) - Decimal(target.words[0])
    except InvalidOperation:
        raise UserError("'origin_metric' and 'target_metric' must be numbers.", where=target.where) from None
    if drop < 0:
        what = f"'target_metric' ({target.words[0]}) is above 'origin_metric' ({origin.words[0]})."
        raise UserError(what, where=target.where, hint="Leave it out to get the best there is.")
    into.settings["max_drop"] = replace(target, option="max_drop", words=(str(drop),))


def _first(parts: Mapping[str, Entry], among: Mapping[str, str]) -> tuple[Entry, str]:
    section = next(section for section in parts if section in among)
    return parts[section], section
