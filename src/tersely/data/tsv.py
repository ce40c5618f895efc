"""tsv by GLUE's rules: a tab between fields, no quoting (quotes are text), with a header or without."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from . import table
from .lines import bare_lines


def records(path: Path, header: bool | None = None) -> Iterator[tuple[int, Mapping[str, Any]]]:
    r"""Give (line, record) of each line that is not blank.

    >>> import tempfile; file = Path(tempfile.mkdtemp()) / "a.tsv"
    >>> _ = file.write_text('"Good," he said\t1\n')
    >>> list(records(file))
    [(1, {'text': '"Good," he said', 'label': '1'})]
    """
    rows = ((number, line.split("\t")) for number, line in bare_lines(path) if line.strip())
    return table.records(str(path), rows, header, "tab")
