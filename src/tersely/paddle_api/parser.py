"""`PdArgumentParser`: dataclasses from the command line, with a configuration file beneath it."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import re
import sys
import typing
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from transformers import HfArgumentParser

from ..errors import UserError, existing, nearest, wrong_option
from ..options.compress import CompressOptions
from ..options.data import DataOptions
from ..options.option import add_options, strategies, truth, underscored
from ..options.yaml import Asker, Config, Flags, as_words, beside, read_config, which_config, without_idle
from ..tasks.options import TaskOptions
from .arguments import TRANSLATED, CompressionArguments
from .fields import COMPRESS, TASK, TRAINING, ScriptOptions

FLAGS: dict[str, dict[str, Any]] = {
    "device": {"type": str, "help": "cpu or gpu (the best there is)"},
    "overwrite_output_dir": {"type": truth, "nargs": "?", "const": True, "help": "the same as --overwrite"},
    "warmup_ratio": {"type": float, "help": "steps of warm-up as a share of all steps (0)"},
}
"""Flags of the options that are no fields: `TRANSLATED`."""
TRUE = {field.name for field in dataclasses.fields(CompressionArguments) if field.default is True} & COMPRESS
ELSEWHERE = "this script has no such option"


class ConfigWarning(UserWarning):
    """Keys of a configuration file have no effect."""


class _Raising(argparse.ArgumentParser):
    """Says what is wrong instead of leaving the program."""

    def error(self, message: str) -> typing.NoReturn:
        """Raise instead of printing the usage."""
        raise UserError(message[0].upper() + message[1:].rstrip(".") + ".")


class PdArgumentParser(HfArgumentParser):  # type: ignore[misc]
    """Parses one or several dataclasses, `CompressionArguments` among them or not.

    `--config FILE` sets options that the command line does not set, unless a dataclass has a `config` of its own. A
    name that several dataclasses have is one flag, for all of them. A mistake in a script's own command line is one
    line of text and exit code 2; in words that are passed as `args` it is a `UserError`.

    >>> parser = PdArgumentParser(CompressionArguments)
    >>> arguments = parser.parse_args_into_dataclasses(["--output_dir", "out", "--strategy", "ptq"])
    >>> arguments.strategy, len(arguments)
    ('ptq', 1)
    >>> parser.parse_args_into_dataclasses(["--output_dir", "out", "--stategy", "ptq"])
    Traceback (most recent call last):
    tersely.errors.UserError: There is no option '--stategy'. Did you mean '--strategy'?
    """

    def __init__(self, dataclass_types: Any = None, **more: Any) -> None:
        super().__init__(dataclass_types, **{"allow_abbrev": False, **more})
        self.own_config = not self._knows("config")
        if self.own_config:
            what = "YAML file of options; the command line wins"
            self.add_argument("--config", "--config_path", metavar="FILE", help=what)
        for action in self._actions:
            if action.dest != "help":
                _forget_default(action)

    def parse_args_into_dataclasses(
        self,
        args: Sequence[str] | None = None,
        return_remaining_strings: bool = False,
        look_for_args_file: bool = True,
        args_filename: str | None = None,
        args_file_flag: str | None = None,
    ) -> tuple[Any, ...]:
        """Parse words, `sys.argv` unless given; an `.args` file beside the script comes first, then the YAML file."""
        with self._reporting(exits=args is None):
            words = list(sys.argv[1:] if args is None else args)
            words = with_args_files(words, look_for_args_file, args_filename, args_file_flag)
            return self._parse(words, return_remaining_strings)
        raise AssertionError("not reached")

    def parse_dict(self, args: Mapping[str, Any], allow_extra_keys: bool = False) -> tuple[Any, ...]:
        """Fill the dataclasses from values by name."""
        taken = {name for kind in self.dataclass_types for name in names_of(kind)}
        for name in args:
            if name not in taken and not allow_extra_keys:
                raise UserError(f"There is no option '{name}'.", hint=nearest(name, sorted(taken)))
        return self._made(args)

    def parse_json_file(self, json_file: str | Path, allow_extra_keys: bool = False) -> tuple[Any, ...]:
        """Fill the dataclasses from a JSON file."""
        return self.parse_dict(read_json(json_file), allow_extra_keys=allow_extra_keys)

    def parse_json_file_and_cmd_lines(self) -> tuple[Any, ...]:
        """Parse `script.py options.json --more words`: the command line wins over the file."""
        with self._reporting(exits=True):
            if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
                raise UserError("The first word must be a JSON file.", hint="Write: script.py options.json [options]")
            args, rest = self.parse_known_args([self._known_form(word) for word in sys.argv[2:]])
            self._refuse(rest)
            return self.parse_dict({**read_json(sys.argv[1]), **self._values(args)})
        raise AssertionError("not reached")

    def parse_yaml_file(self, yaml_file: str | Path, allow_extra_keys: bool = False) -> tuple[Any, ...]:
        """Fill the dataclasses from a YAML file, in any shape that `--config` takes."""
        config = self._read(which_config([]), str(yaml_file), lenient=allow_extra_keys)
        return self._parse(as_words(config, Flags(self)), False, config)

    def error(self, message: str) -> typing.NoReturn:
        """Raise instead of printing the usage."""
        _Raising.error(self, message)

    def _parse(self, words: Sequence[str], rest_too: bool, config: Config | None = None) -> tuple[Any, ...]:
        words = [self._known_form(word) for word in words]
        if self.own_config and any(word.startswith("--config") for word in words):
            seen = which_config(words, _Raising)
            config = self._read(seen, seen.config, words)
            words = [*as_words(config, Flags(self)), *words]
        args, rest = self.parse_known_args(words)
        if not rest_too:
            self._refuse(rest)
        with (config or Config("no file")).blamed():
            made = self._made(self._values(args))
        others = {name: value for name, value in vars(args).items() if not self._taken(name) and name != "config"}
        more = [argparse.Namespace(**others)] if others else []
        return (*made, *more, rest) if rest_too else made if not more else (*made, *more)

    def _refuse(self, rest: Sequence[str]) -> None:
        """Refuse words that no flag takes."""
        unknown = next((word for word in rest if word.startswith("-")), None)
        if unknown is not None:
            known = [name for name in self._option_string_actions if name.startswith("--")]
            name = unknown.partition("=")[0]
            raise UserError(f"There is no option '{name}'.", hint=nearest(name, known))
        if rest:
            raise UserError(f"The word '{rest[0]}' belongs to no option.")

    @contextmanager
    def _reporting(self, *, exits: bool) -> Iterator[None]:
        """Say what is wrong with a script's own command line in one line, and leave."""
        try:
            yield
        except UserError as error:
            error.on_command_line = True
            if not exits:
                raise
            self.exit(2, f"{self.prog}: {error}\n")

    def _read(self, seen: argparse.Namespace, path: str, words: Sequence[str] = (), *, lenient: bool = False) -> Config:
        """The file's options that the command line does not set; a warning names those that mean nothing here."""
        here = {name for kind in self.dataclass_types for name in names_of(kind)}
        ours = {*COMPRESS, *TRAINING, *TASK, *ScriptOptions.__dataclass_fields__, *TRANSLATED}
        ours |= {*DataOptions.__dataclass_fields__, "model_name_or_path"}
        idle = dict.fromkeys(sorted(ours - here), ELSEWHERE)
        dataset = seen.dataset or self._default("dataset")
        config = read_config(path, Asker(sorted(here), idle, dataset, seen.task, lenient))
        config = beside(config, words, Flags(self))
        if any(issubclass(kind, CompressionArguments) for kind in self.dataclass_types):
            config = without_idle(config, seen.strategy)
        for note in config.notes():
            warnings.warn(note, ConfigWarning, stacklevel=5)
        return config

    def _add_dataclass_arguments(self, dtype: Any) -> None:
        """Declare the flags of a dataclass, but for those that an earlier one has too."""
        added = {name for name in names_of(dtype) if not self._knows(name)}
        if issubclass(dtype, CompressionArguments):
            add_options(self, CompressOptions, only=COMPRESS & added)
            add_options(self, TaskOptions, only=TASK & added)
            for name in sorted(added & TRUE):
                self.add_argument(f"--no_{name}", action="store_false", dest=name, help=f"the same as --{name} false")
            for name in sorted(added & FLAGS.keys()):
                self.add_argument(f"--{name}", **FLAGS[name])
            if "output_dir" in added:
                names = ("--output_dir", *(() if self._knows("save_dir") else ("--save_dir",)))
                self.add_argument(*names, help="where results go (needed)")
        hints = typing.get_type_hints(dtype)
        for field in dataclasses.fields(dtype):
            if field.init and field.name in added and not self._knows(field.name):
                own = copy.copy(field)  # the parser of transformers writes into it
                own.type = hints[field.name]
                known = {name: field.metadata[name] for name in ("help", "aliases") if name in field.metadata}
                own.metadata = MappingProxyType(known)
                if typing.get_origin(own.type) is dict or own.type is dict:
                    self.add_argument(f"--{field.name}", type=json.loads, help=field.metadata.get("help"))
                else:
                    self._parse_dataclass_field(self, own)
        if "optim" in added and issubclass(dtype, CompressionArguments):
            action = self._option_string_actions["--optim"]
            action.choices = ["adamw", *(action.choices or ())]

    def _values(self, args: argparse.Namespace) -> dict[str, Any]:
        """The options that were set, by the dataclasses' names for them."""
        values = {name: value for name, value in vars(args).items() if self._taken(name)}
        if isinstance(values.get("strategy"), list) and all(isinstance(words, list) for words in values["strategy"]):
            values["strategy"] = strategies(values["strategy"])
        return values

    def _made(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """The dataclasses; what is not among the values is left to their own defaults."""
        for field in (field for kind in self.dataclass_types for field in dataclasses.fields(kind) if field.init):
            if field.default is field.default_factory is dataclasses.MISSING and field.name not in values:
                raise wrong_option(field.name, "is needed.")
        made = [make(kind, values) for kind in self.dataclass_types]
        return TupleOfOne(made) if len(made) == 1 else tuple(made)

    def _knows(self, name: str) -> bool:
        return f"--{name}" in self._option_string_actions

    def _taken(self, name: str) -> bool:
        return any(name in names_of(kind) for kind in self.dataclass_types)

    def _default(self, name: str) -> Any:
        found = (kind.__dataclass_fields__.get(name) for kind in self.dataclass_types)
        return next((field.default for field in found if field and isinstance(field.default, str)), None)

    def _known_form(self, word: str) -> str:
        """Hyphens for underscores, where only that is a flag."""
        name = word.partition("=")[0]
        return word if name in self._option_string_actions else underscored(word)


def _forget_default(action: argparse.Action) -> None:
    """Leave defaults to the dataclasses, so that parsing gives only what was set; the help still shows them."""
    default, text = action.default, re.sub(r"(?<!%)%(?![%(])", "%%", action.help or "")
    if default not in (None, argparse.SUPPRESS, "", []) and action.nargs != 0:
        text = f"{text} (default: {str(default).replace('%', '%%')})".strip()
    action.help = text
    action.default, action.required = argparse.SUPPRESS, False


def names_of(kind: Any) -> list[str]:
    """What a dataclass can be made with."""
    own = [field.name for field in dataclasses.fields(kind) if field.init]
    return [*own, *TRANSLATED] if issubclass(kind, CompressionArguments) else own


def make(kind: Any, values: Mapping[str, Any]) -> Any:
    """Make a dataclass of those values that it takes; the others are left to its own defaults."""
    own = {name: values[name] for name in names_of(kind) if name in values}
    later = {}
    if issubclass(kind, CompressionArguments) and kind.__init__ is not CompressionArguments.__init__:
        later = {name: own.pop(name) for name in TRANSLATED if name in own}  # its constructor has the fields only
    made = kind(**own)
    for name, value in later.items():
        setattr(made, name, value)
    return made


class TupleOfOne(tuple):  # type: ignore[type-arg]
    """What a parser of one dataclass gives: scripts unpack it, or use it as the dataclass itself.

    >>> from types import SimpleNamespace
    >>> parsed = TupleOfOne([SimpleNamespace(seed=42)])
    >>> parsed.seed = 7
    >>> (inner,) = parsed
    >>> inner.seed, parsed.seed
    (7, 7)
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not self:  # Python's own questions are about the tuple
            raise AttributeError(name)
        return getattr(self[0], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self[0], name, value)


def with_args_files(words: Sequence[str], look: bool, name: str | None, flag: str | None) -> list[str]:
    """Words of `.args` files before those of the command line: the script's own file, or those that are named."""
    own = Path(sys.argv[0]).with_suffix(".args") if look and sys.argv and sys.argv[0] else None
    files = [Path(name)] if name else [own] if own is not None and own.is_file() else []
    rest = list(words)
    if flag:
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument(flag, action="append", dest="files")
        seen, rest = parser.parse_known_args(rest)
        files += [Path(file) for file in seen.files or ()]
    said = [word for file in files for word in existing(file, "file of options").read_text(encoding="utf-8").split()]
    return [*said, *rest]


def read_json(path: str | Path) -> dict[str, Any]:
    """The values of a JSON file."""
    try:
        content = json.loads(existing(path, "file of options").read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise UserError(f"The file is not JSON: {error.msg}.", where=f"{path}:{error.lineno}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"The file is not UTF-8 (byte {error.start}).", where=str(path)) from None
    if not isinstance(content, dict):
        raise UserError("The file must hold one JSON object.", where=str(path))
    return content
