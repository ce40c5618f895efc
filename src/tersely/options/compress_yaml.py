"""Configuration files of compress runs: which file, which part of it, and what of it has an effect on this run."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence

from ..errors import UserError
from ..strategy import Plan, parse_all
from .compress import CompressOptions
from .compress_flags import strategies
from .effects import touches, trains
from .yaml import Config


def look(words: Sequence[str], kind: type[argparse.ArgumentParser] = argparse.ArgumentParser) -> argparse.Namespace:
    """What of the words typed says which file is meant, and which part of it: config, dataset, task, strategy.

    >>> look(["--config", "a.yml", "--seed", "1"]).config
    'a.yml'
    """
    parser = kind(add_help=False, allow_abbrev=False)
    parser.add_argument("--config", "--config_path")
    parser.add_argument("--dataset")
    parser.add_argument("--task")
    parser.add_argument("--strategy", nargs="+", action="append")
    return parser.parse_known_args(words)[0]


def without_idle(config: Config, typed: list[list[str]] | None, training: Collection[str] = ()) -> Config:
    """A file serves several runs: what has no effect on this one is left out, and named.

    `typed`: strategies of the command line. `training`: options that have an effect only where something is trained.
    """
    plans = _plans(config, typed)
    names = " or ".join(f"'{plan.name}'" for plan in plans)
    idle = {name: f"it is nothing to {names}" for name in config.settings if not touches(name, plans)}
    if not trains(plans):
        idle |= {name: f"{names} trains nothing" for name in config.settings if name in training}
    return config.without(idle)


def _plans(config: Config, typed: list[list[str]] | None) -> tuple[Plan, ...]:
    if typed is not None:
        return parse_all(strategies(typed))
    setting = config.settings.get("strategy")
    if setting is None:
        return CompressOptions().plans()
    try:
        return parse_all(setting.words)
    except UserError as error:
        raise UserError(error.what, where=setting.where, hint=error.hint) from None
