"""Write the options into the source of the public API, where editors, `help()` and mypy see them: `make docs`.

`tersely.compress`, `finetune`, `export`, `evaluate` and `benchmark` get a parameter and a line of their docstring for
each option, `CompressionArguments` a field. What is said of their other parameters stays as it is.
"""

from __future__ import annotations

import ast
import json
import re
import textwrap
import typing
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, TypeGuard

from tersely.options.compress import CompressOptions
from tersely.options.data import DataOptions
from tersely.options.option import Option, options_of
from tersely.options.readers import path
from tersely.options.training import TrainingOptions
from tersely.tasks.options import TaskOptions

SOURCE = Path(__file__).parents[1] / "src" / "tersely"
CALL, FIELDS = SOURCE / "compression" / "call.py", SOURCE / "paddle_api" / "fields.py"
ABOUT_ROWS = tuple(
    SOURCE / name for name in ("training/call.py", "deploy/export.py", "deploy/evaluate.py", "deploy/benchmark.py")
)
"""Functions that take the options of tasks and columns."""
ARGS = re.compile(r"(?<=\n    Args:\n).*?(?=\n    Returns:\n)", re.DOTALL)
START, END = "# generated from the options: make docs", "# end of generated"

ACCEPTED = {Fraction: "str | float | Fraction", float: "float | str", int: "int | str", str: "str"}
"""What an element of a list may be written as."""
ALIASES = {"strategy": "Strategies", Fraction: "Shares", float: "Numbers", int: "Counts", str: "Texts"}
"""Names in paddle_api/fields.py for what a list may be written as."""


def call_options() -> dict[str, Option]:
    """The options that `compress` takes as parameters, in order."""
    ours = {**options_of(CompressOptions), **row_options()}
    return {**ours, **{name: one for name, one in options_of(TrainingOptions).items() if name not in ours}}


def row_options() -> dict[str, Option]:
    """The options of tasks, and those that say what columns hold."""
    form = {name: one for name, one in options_of(DataOptions).items() if name == "header" or name.endswith("_column")}
    return {**options_of(TaskOptions), **form}


def field_options() -> dict[str, Option]:
    """The options that are fields of `CompressionArguments`, in order."""
    from tersely.paddle_api.fields import COMPRESS, OTHER_DEFAULTS, ScriptOptions

    kinds = (TrainingOptions, CompressOptions, TaskOptions, ScriptOptions)
    found = {name: one for kind in kinds for name, one in options_of(kind).items()}
    names = {*OTHER_DEFAULTS, *COMPRESS, *options_of(TaskOptions), *options_of(ScriptOptions)}
    usual = {name: replace(found[name], type=float) for name in OTHER_DEFAULTS}  # transformers takes shares too
    return usual | {name: one for name, one in found.items() if name in names and name not in usual}


def parameters(options: Iterable[Option]) -> str:
    """Parameters of `compress`, one a line."""
    return "".join(f"    {one.name}: {annotation(one)} = {default(one)},\n" for one in options)


def described(texts: Mapping[str, str]) -> str:
    """Lines of a docstring's `Args:`."""
    return "".join(_wrapped(f"{name}: {text}", 8, 12) for name, text in texts.items())


def fields(options: Iterable[Option]) -> str:
    """Fields of a dataclass, each with its docstring."""
    lines = []
    for one in options:
        line = f"    {one.name}: {alias(one)} = {_field(one)}\n"
        if len(line) > 121:
            line = line.replace("field(", "field(\n        ").replace("])\n", "]\n    )\n")
        lines.append(line)
        lines.append(_wrapped(f'"""{sentence(one)}"""', 4, 4))
    return "".join(lines)


def sentence(option: Option) -> str:
    """What an option means, which steps it is for and what its default is."""
    named, colon, rest = option.what.partition(": ")
    what = rest if colon and set(named.split(", ")) == set(option.steps) else option.what
    steps = f" For {', '.join(option.steps)}." if option.steps else ""
    usual = f" Default: {option.default_text}." if option.default_text else ""
    first = re.split(r"[ ,:]", what)[0]
    is_value = "_" in first or first == option.default or first in typing.get_args(option.element)
    what = what if is_value else f"{what[0].upper()}{what[1:]}"
    return f"{what}{'' if what.endswith('…') else '.'}{steps}{usual}"


def annotation(option: Option) -> str:
    """The type of a parameter: what may be passed, which is more than what a value is once it is read.

    >>> annotation(options_of(CompressOptions)["batch_num_list"])
    'int | str | Iterable[int | str | None] | None'
    """
    if option.is_list:
        each = ACCEPTED[option.kind]
        inner = f"{each} | None" if type(None) in typing.get_args(_element(option)) else each
        text = f"{each} | Iterable[{inner}]"
    else:
        text = "str | Path" if option.read is path else _plain(option)
    return f"{text} | None" if option.default is None else text


def alias(option: Option) -> str:
    """The type of a field: `annotation`, lists under the names that transformers' parser reads as lists of texts."""
    if option.is_list:
        text = ALIASES.get(option.name) or ALIASES[option.kind]
    elif isinstance(option.default, str) and "float" in _plain(option):
        text = "Strength"
    else:
        return annotation(option)
    return f"{text} | None" if option.default is None else text


def default(option: Option) -> str:
    """A default as Python writes it; shares as the text that they are.

    >>> default(options_of(CompressOptions)["width_mult_list"]), default(options_of(CompressOptions)["algo_list"])
    ('"3/4"', '("mse", "KL", "min_max")')
    """
    value = option.default
    if isinstance(value, tuple) and option.kind is Fraction:
        return json.dumps(" ".join(map(str, value)))
    if isinstance(value, tuple):
        return json.dumps(value[0]) if len(value) == 1 else f"({json.dumps(value)[1:-1]})"
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _field(option: Option) -> str:
    value = f"default={default(option)}"
    if option.is_list and option.default is not None and option.name != "strategy":
        items = ", ".join(map(_literal, option.default))
        value = f"default_factory=lambda: [{items}]" if items else "default_factory=list"
    return f'field({value}, metadata=HELP["{option.name}"])'


def _literal(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _plain(option: Option) -> str:
    parts = typing.get_args(option.element) if typing.get_origin(option.element) is typing.Union else [option.element]
    return " | ".join(_word(part) for part in parts)


def _word(part: Any) -> str:
    if typing.get_origin(part) is Literal:
        return f"Literal[{', '.join(map(json.dumps, typing.get_args(part)))}]"
    return str(part.__name__)


def _element(option: Option) -> Any:
    """The type of a list's elements, with None where that is one."""
    lists = [option.type, *typing.get_args(option.type)]
    return next(typing.get_args(one)[0] for one in lists if typing.get_origin(one) is tuple)


def _wrapped(text: str, first: int, rest: int) -> str:
    lines = textwrap.wrap(text, 120, initial_indent=" " * first, subsequent_indent=" " * rest, break_on_hyphens=False)
    return "\n".join(lines) + "\n"


def page(file: Path) -> str:
    """What a file ought to hold."""
    text = file.read_text(encoding="utf-8")
    if file == FIELDS:
        return _between(text, fields(field_options().values()))
    options = call_options() if file == CALL else row_options()
    text = _between(text, parameters(options.values()))
    return ARGS.sub(lambda found: described(_texts(text, found[0], options)), text)


def _texts(source: str, lines: str, options: Mapping[str, Option]) -> dict[str, str]:
    """What is said of each parameter, in their order: of an option what it declares, of others what is said already."""
    function = next(node for node in ast.parse(source).body if _has_args(node))
    said = {
        name: " ".join(text.split())
        for name, text in re.findall(r"^ {8}(\w+): (.*(?:\n {12}.*)*)", lines, re.MULTILINE)
    }
    names = [one.arg for one in (*function.args.args, *function.args.kwonlyargs)]
    return {name: sentence(options[name]) if name in options else said[name] for name in names}


def _has_args(node: ast.stmt) -> TypeGuard[ast.FunctionDef]:
    return isinstance(node, ast.FunctionDef) and "\nArgs:\n" in (ast.get_docstring(node) or "")


def _between(text: str, generated: str) -> str:
    """The text with other lines between the marks."""
    pattern = rf"(?<={re.escape(START)}\n).*?(?=    {re.escape(END)}\n)"
    return re.sub(pattern, lambda _: generated, text, flags=re.DOTALL)


if __name__ == "__main__":
    for file in (CALL, FIELDS, *ABOUT_ROWS):
        file.write_text(page(file), encoding="utf-8")
