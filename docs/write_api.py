"""Write the options into the source of the public API, where editors, `help()` and mypy see them: `make docs`.

`tersely.compress` gets a parameter and a line of its docstring for each option, `CompressionArguments` a field.
"""

from __future__ import annotations

import json
import re
import textwrap
import typing
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from tersely.options.compress import CompressOptions
from tersely.options.data import DataOptions
from tersely.options.option import Option, options_of
from tersely.options.readers import path
from tersely.options.training import TrainingOptions
from tersely.tasks.options import TaskOptions

SOURCE = Path(__file__).parents[1] / "src" / "tersely"
CALL, FIELDS = SOURCE / "compression" / "call.py", SOURCE / "paddle_api" / "fields.py"
START, END = "# generated from the options: make docs", "# end of generated"

ROWS = "str | Path | Iterable[Mapping[str, Any]] | None = None"
BEFORE = {
    "model": "Fine-tuned transformers folder. Not needed with `input_infer_model_path`.",
    "output_dir": "Where best/, candidates/, torch/ (what was pruned), result.json and report.html go.",
    "train_file": "Rows to train and calibrate on: a path (csv, tsv, json, jsonl, parquet, CoNLL txt, SQuAD json), a "
    "`datasets.Dataset`, or a list of mappings.",
    "eval_file": "Rows that score and choose, likewise.",
    "test_file": "Rows that choose nothing and report at the end, likewise.",
}
AFTER = {
    "training_args": "Further options of `transformers.TrainingArguments` by name, where a strategy trains.",
    "overwrite": "Replace an earlier result in output_dir. Default: false.",
    "progress": "A `Progress` of your own; None shows a bar on a terminal, False nothing.",
}
"""Parameters of `compress` that are no options, before and after those that are."""
ACCEPTED = {Fraction: "str | float | Fraction", int: "int | str", str: "str"}
"""What an element of a list may be written as."""
ALIASES = {"strategy": "Strategies", Fraction: "Shares", int: "Counts", str: "Texts"}
"""Names in paddle_api/fields.py for what a list may be written as."""


def call_options() -> dict[str, Option]:
    """The options that `compress` takes as parameters, in order."""
    form = {name: one for name, one in options_of(DataOptions).items() if name == "header" or name.endswith("_column")}
    ours = {**options_of(CompressOptions), **options_of(TaskOptions), **form}
    return {**ours, **{name: one for name, one in options_of(TrainingOptions).items() if name not in ours}}


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
    options = call_options()
    texts = {**BEFORE, **{name: sentence(one) for name, one in options.items()}, **AFTER}
    text = _between(text, parameters(options.values()))
    return re.sub(r"(?<=\n    Args:\n).*?(?=\n    Returns:\n)", lambda _: described(texts), text, flags=re.DOTALL)


def _between(text: str, generated: str) -> str:
    """The text with other lines between the marks."""
    pattern = rf"(?<={re.escape(START)}\n).*?(?=    {re.escape(END)}\n)"
    return re.sub(pattern, lambda _: generated, text, flags=re.DOTALL)


if __name__ == "__main__":
    for file in (CALL, FIELDS):
        file.write_text(page(file), encoding="utf-8")
