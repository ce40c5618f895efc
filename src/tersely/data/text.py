"""Plain text: one text per line; blank lines are passed over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .lines import bare_lines


def records(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    r"""Give (line, {"text": line}).

    >>> import tempfile; file = Path(tempfile.mkdtemp()) / "a.txt"
    >>> _ = file.write_text("good\n\nbad\n")
    >>> list(records(file))
    [(1, {'text': 'good'}), (3, {'text': 'bad'})]
    """
    for number, line in bare_lines(path):
        if line.strip():
            yield number, {"text": line}
