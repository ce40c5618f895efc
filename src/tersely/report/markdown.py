"""`report.md`: the same for terminals and pull requests."""

from __future__ import annotations

from . import answer, changed, layers, reproduce
from .candidates import candidates, remarks
from .run import Run
from .table import escape_markdown, markdown_table

MARK = "<!-- tersely report -->"
SHOWN = 10
"""Layers whose harm is told, names of layers that stayed float for one reason."""


def markdown(run: Run) -> str:
    """The whole text. The same run gives the same bytes."""
    best = f"{escape_markdown(run.model)}: {escape_markdown(run.best)}"
    parts = [MARK, f"# {best}", f"**{escape_markdown(answer.headline(run))}**", _facts(run)]
    parts += _list(answer.stamps(run))
    parts += ["## Candidates", markdown_table(candidates(run)).rstrip()]
    parts += [escape_markdown(line) for line in (run.rule, *remarks(run)) if line]
    if run.layers:
        parts += ["## Layers", *_layers(run)]
    if said := changed.summary(run):
        parts += ["## Rows whose answer changed", said]
        table = changed.changed(run)
        parts += [] if table is None else [markdown_table(table).rstrip()]
    if (table := changed.confusion(run)) is not None:
        parts += [
            "## Which labels are taken for which",
            "In brackets: the change from FP32.",
            markdown_table(table).rstrip(),
        ]
    parts += ["## To run it again"]
    typed = reproduce.command(run)
    if typed is not None:
        fence = "`" * max(3, 1 + _longest_fence(typed))
        parts.append(f"{fence}bash\n{typed}\n{fence}")
    parts.append(markdown_table(reproduce.facts(run)).rstrip())
    parts += _list(run.notes)
    return "\n\n".join(part for part in parts if part) + "\n"


def _facts(run: Run) -> str:
    lines = []
    for fact in answer.facts(run):
        beside = ", ".join(line for line in fact.beside if line)
        lines.append(f"- {escape_markdown(fact.name)}: **{escape_markdown(fact.figure)}** ({escape_markdown(beside)})")
    return "\n".join(line.replace(" ()", "") for line in lines)


def _list(lines: object) -> list[str]:
    found = [f"- {escape_markdown(str(line))}" for line in (lines if isinstance(lines, (list, tuple)) else ())]
    return ["\n".join(found)] if found else []


def _layers(run: Run) -> list[str]:
    said = [escape_markdown(line) for line in layers.summary(run)]
    for reason, names in layers.floats(run).items():
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        said.append(f"Float, {escape_markdown(reason)}: {', '.join(map(escape_markdown, names[:SHOWN]))}{more}.")
    table = layers.harm(run)
    if table is not None:
        said.append("Harm of each layer alone in INT8, the largest first:")
        said.append(markdown_table(type(table)(table.columns, table.lines[:SHOWN])).rstrip())
    return said


def _longest_fence(text: str) -> int:
    longest = run = 0
    for letter in text:
        run = run + 1 if letter == "`" else 0
        longest = max(longest, run)
    return longest
