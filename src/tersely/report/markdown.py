"""`report.md`: the same for terminals and pull requests."""

from __future__ import annotations

import re
from collections.abc import Sequence

from . import answer, tables
from .ladder import ladder, ladder_summary
from .markup import ReportTable, escape_markdown, markdown_table
from .run import FinishedRun
from .shape import shape_summary, shape_table

MARK = "<!-- tersely report -->"
SHOWN = 10
"""Layers whose harm is shown, names of layers that stayed float for one reason."""


def markdown(run: FinishedRun) -> str:
    """The whole text. The same run gives the same bytes."""
    best = f"{escape_markdown(run.model)}: {escape_markdown(run.best)}"
    parts = [MARK, f"# {best}", f"**{escape_markdown(answer.headline(run))}**", _facts(run), _list(answer.stamps(run))]
    if (table := ladder(run)) is not None:
        parts += ["## What was tried", escape_markdown(ladder_summary(run)), markdown_table(table)]
    parts += ["## Candidates", markdown_table(tables.candidates(run))]
    parts += [escape_markdown(line) for line in (run.rule, *tables.remarks(run)) if line]
    if (table := shape_table(run)) is not None:
        said = [escape_markdown(line) for line in shape_summary(run)]
        parts += ["## Shape of the chosen model", *said, markdown_table(table)]
    if run.layers:
        parts += ["## Layers", *_layers(run)]
    if changes := tables.changes_summary(run):
        parts += ["## Rows whose answer changed", changes]
        table = tables.changed(run)
        parts += [] if table is None else [markdown_table(table)]
    if (table := tables.confusion(run)) is not None:
        parts += ["## Which labels are taken for which", "In brackets: the change from FP32.", markdown_table(table)]
    parts += ["## To run it again"]
    command = tables.command(run)
    if command is not None:
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", command)), default=0))
        parts.append(f"{fence}bash\n{command}\n{fence}")
    parts += [markdown_table(tables.made_with(run)), _list(run.notes)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _facts(run: FinishedRun) -> str:
    lines = []
    for fact in answer.facts(run):
        beside = ", ".join(line for line in fact.beside if line)
        lines.append(f"- {escape_markdown(fact.name)}: **{escape_markdown(fact.figure)}** ({escape_markdown(beside)})")
    return "\n".join(line.replace(" ()", "") for line in lines)


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {escape_markdown(line)}" for line in lines)


def _layers(run: FinishedRun) -> list[str]:
    said = [escape_markdown(line) for line in tables.layers_summary(run)]
    for reason, names in tables.floats(run).items():
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        said.append(f"Float, {escape_markdown(reason)}: {', '.join(map(escape_markdown, names[:SHOWN]))}{more}.")
    table = tables.harm(run)
    if table is not None:
        said.append("Harm of each layer alone in INT8, the largest first:")
        said.append(markdown_table(ReportTable(table.columns, table.lines[:SHOWN])))
    return said
