"""Which labels a training file has."""

from __future__ import annotations

from typing import Any

from ..data.labels import discover_labels, labels_beside
from ..data.rows import Rows
from ..errors import UserError
from ..tasks import Columns, facts_of
from ..tasks.sequence_classification import LABEL, MULTI, REGRESSION, label_list
from ..tasks.token_classification import TAGS


def find_labels(rows: Rows, columns: Columns, task: str, problem: str | None) -> tuple[str, ...]:
    """All labels (or tags) that occur, in order; a regression has the one 'LABEL_0'.

    A `labels.json` beside the file, as CLUE's data sets have, says them in its own order.
    """
    if problem == REGRESSION:
        return ("LABEL_0",)
    tags = facts_of(task).answers_for == "tokens"
    option = "tags_column" if tags else "label_column"
    asked = columns.tags or columns.label if tags else columns.label
    column = rows.column(option, asked, TAGS if tags else LABEL)
    if column is None:
        what = f"There is no {'tag' if tags else 'label'} column. Columns here: {', '.join(rows.columns)}."
        raise UserError(what, where=rows.source, hint=f"Name it with --{option}.")
    if problem == MULTI:
        rows = rows.map(lambda record: {column: label_list(record.get(column))}, [column])
    elif not tags:
        for index, record in enumerate(rows):
            if isinstance(record.get(column), (list, tuple)):
                hint = "For several labels a row use --task multi_label_classification."
                raise rows.error(index, "The label is a list.", hint=hint)
        rows = rows.map(lambda record: {column: _stripped(record.get(column))}, [column])
    found = discover_labels(rows, column, None if tags else labels_beside(rows.source))
    if len(found) < 2 and problem != MULTI:
        raise UserError(f"All rows have the same label, '{found[0]}': nothing can be learnt.", where=rows.source)
    return found


def _stripped(label: Any) -> Any:
    """Blanks around a label are not part of it, as for the task that reads it."""
    return label.strip() if isinstance(label, str) else label
