"""docs/reference/options.md: every option of compression with its default, what it is for, and what it means."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from describe_commands import cell

from tersely.options.compress import OPTIONS
from tersely.options.data import DataOptions
from tersely.options.option import options_of, shown
from tersely.options.training import TrainingOptions
from tersely.paddle_api.fields import ScriptOptions
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
    for name, option in OPTIONS.items():
        steps = ", ".join(step for step in STEPS if step in option.steps)
        yield f"`{name}`", cell(option.default_text or "not set"), steps, cell(_without(option.what, option.steps))


def _without(what: str, steps: Collection[str]) -> str:
    """A help text without the steps in front of it, which have a column of their own."""
    named, colon, rest = what.partition(": ")
    return rest if colon and set(named.split(", ")) == set(steps) else what


def simple(kind: Any) -> Iterator[tuple[str, ...]]:
    """Options that have no default of their own."""
    for name, option in options_of(kind).items():
        yield f"`{name}`", cell(option.help)


def training() -> Iterator[tuple[str, ...]]:
    """The usual options of training, as `tersely compress` has them."""
    for name, option in options_of(TrainingOptions).items():
        if name not in OPTIONS:
            yield f"`{name}`", cell(option.default_text or "not set"), cell(option.what)


def refused() -> Iterator[tuple[str, ...]]:
    """Options of transformers that cannot have an effect."""
    for name, instead in {**DECIDED, **REFUSED}.items():
        if name not in OPTIONS:
            yield f"`{name}`", cell(instead)


def switches() -> Iterator[tuple[str, ...]]:
    """Fields that only scripts have."""
    for name, option in options_of(ScriptOptions).items():
        yield f"`{name}`", "not set" if option.default is None else shown(option.default), cell(option.what)
