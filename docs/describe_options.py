"""docs/reference/options.md: every option of compression with its default, what it is for, and what it means."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from describe_commands import cell

from tersely.cli import parser_of
from tersely.cli.training_arguments import TRAINING
from tersely.options.compress import CompressOptions
from tersely.options.data import DataOptions
from tersely.options.effects import EFFECT
from tersely.paddle_api import fields
from tersely.strategy import STEPS
from tersely.tasks.options import TaskOptions
from tersely.training.arguments import DECIDED, REFUSED

HEAD = """# Options

Made from the code by `make docs`. One option has one name, one meaning and one default everywhere:

| where | how it is written |
|---|---|
| `tersely compress` | `--width_mult_list 3/4 1/2`, or with hyphens |
| a [YAML file](../how_to/configure.md) | `width_mult_list: [3/4, 1/2]` |
| `tersely.compress(…)` | `width_mult_list="3/4 1/2"`, or a list of texts, numbers, fractions |
| `tersely.CompressionArguments(…)` | the same |

An option that can have no effect on what was asked for is refused by name, and so is a value that cannot be, before any
work starts.

## How a model is made smaller

*for*: the steps of a strategy that the option has an effect on; none named: all.
"""
TASKS = """
## How rows become features, and logits a score

What is not set comes with the model (`tersely_task.json` or `tersely.json` in its folder), else it is what stands in
brackets.
"""
ROWS = """
## Where rows come from

Of the commands alone: `tersely.compress` takes paths or rows in memory, `CompressionArguments` leaves files to the
script. [Formats and columns](../how_to/bring_your_own_data.md).
"""
TRAINED = """
## How `dynabert` and `qat` train

These and every other option of transformers' `TrainingArguments`, by its own name.
"""
DECIDED_HERE = """
What a run decides for itself is refused, with what to do instead:
"""
SCRIPTS = """
## In scripts alone

Further fields of `CompressionArguments`:
"""


def page() -> str:
    """The tables, one for each kind of option."""
    parts = [HEAD, table(["option", "default", "for", "what"], compression()), TASKS]
    parts += [table(["option", "what"], simple(TaskOptions)), ROWS, table(["option", "what"], simple(DataOptions))]
    parts += [TRAINED, table(["option", "default", "what"], training()), DECIDED_HERE]
    parts += [table(["option", "instead"], refused()), SCRIPTS]
    parts += [table(["field", "default", "what"], switches())]
    return "\n".join(parts)


def table(head: list[str], rows: Iterator[tuple[str, ...]]) -> str:
    """Rows of cells as Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def compression() -> Iterator[tuple[str, ...]]:
    """Each option of compression."""
    for field in dataclasses.fields(CompressOptions):
        effective = EFFECT[field.name][0] if field.name in EFFECT else set()
        steps = ", ".join(step for step in STEPS if step in effective)
        default, what = told(field.metadata["help"])
        if default is None:
            default = "not set" if field.default is None else shown(field.default)
        yield f"`{field.name}`", cell(default), steps, cell(_without(what, effective))


def _without(what: str, steps: set[str]) -> str:
    """A help text without the steps in front of it, which have a column of their own."""
    named, colon, rest = what.partition(": ")
    return rest if colon and set(named.split(", ")) == steps else what


def simple(kind: Any) -> Iterator[tuple[str, ...]]:
    """Options that have no default of their own."""
    for field in dataclasses.fields(kind):
        yield f"`{field.name}`", cell(field.metadata["help"])


def training() -> Iterator[tuple[str, ...]]:
    """The usual options of training, as `tersely compress` has them."""
    parser, _ = parser_of("compress")
    for action in parser._actions:
        if action.dest in (*TRAINING, "bf16") and action.dest != "seed":
            default, what = told(str(action.help))
            yield f"`{action.dest}`", cell(default or "not set"), cell(what)


def refused() -> Iterator[tuple[str, ...]]:
    """Options of transformers that cannot have an effect."""
    for name, instead in {**DECIDED, **REFUSED}.items():
        if name not in CompressOptions.__dataclass_fields__:
            yield f"`{name}`", cell(instead)


def switches() -> Iterator[tuple[str, ...]]:
    """Fields that only scripts have."""
    ours = {*fields.COMPRESS, *fields.TASK, *fields.OTHER_DEFAULTS}
    for name, _, field in fields.declared():
        if name not in ours:
            yield f"`{name}`", shown(field.default), cell(field.metadata["help"])


def told(help_: str) -> tuple[str | None, str]:
    """A help text's last bracket, which says the default, and the text without it.

    >>> told("rows to calibrate on (128)"), told("patterns (*pooler*), or auto")
    (('128', 'rows to calibrate on'), (None, 'patterns (*pooler*), or auto'))
    """
    found = re.fullmatch(r"(.*\S) \(([^()]*)\)", help_)
    return (found[2], found[1]) if found else (None, help_)


def shown(value: Any) -> str:
    """A default as it would be typed.

    >>> shown(("mse", "KL")), shown(True), shown(1.0), shown(())
    ('mse KL', 'true', '1', 'none')
    """
    if isinstance(value, tuple):
        return " ".join(map(shown, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return "not set" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
