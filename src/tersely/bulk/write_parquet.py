"""Answers as parquet, through pyarrow: one schema for all parts, whatever stands in them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import missing_package

GROUP = 1 << 16
"""Rows a row group: parts are far smaller than what readers of parquet like."""


def check() -> None:
    """Refuse, before any work, where pyarrow is missing."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise missing_package("pyarrow", "writing parquet") from error


def part(answers: Sequence[Mapping[str, Any]], columns: Mapping[str, Any]) -> bytes:
    """A small parquet file."""
    import pyarrow
    from pyarrow import parquet

    unknown = [name for name, form in columns.items() if form is None]
    rows = [{**answer, **{name: json.dumps(answer[name]) for name in unknown}} for answer in answers]
    stream = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=_schema(columns)), stream)
    return stream.getvalue()


def join(parts: Iterable[Path], stream: BinaryIO, columns: Mapping[str, Any]) -> None:
    """Gather row groups of a good size; never more than one of them is in memory."""
    import pyarrow
    from pyarrow import parquet

    with parquet.ParquetWriter(stream, _schema(columns)) as writer:
        tables: list[Any] = []
        for path in parts:
            tables.append(parquet.read_table(io.BytesIO(path.read_bytes())))
            if sum(table.num_rows for table in tables) >= GROUP:
                writer.write_table(pyarrow.concat_tables(tables))
                tables = []
        if tables:
            writer.write_table(pyarrow.concat_tables(tables))


def _schema(columns: Mapping[str, Any]) -> Any:
    import pyarrow

    return pyarrow.schema([(name, _type(form)) for name, form in columns.items()])


def _type(form: Any) -> Any:
    """The type of a form; what has none is JSON in a string."""
    import pyarrow

    if isinstance(form, list):
        return pyarrow.list_(_type(form[0]))
    if isinstance(form, Mapping):
        return pyarrow.struct([(name, _type(inner)) for name, inner in form.items()])
    return {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64(), None: pyarrow.string()}[form]
