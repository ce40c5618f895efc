"""Fields to records: what csv and tsv share once a line is cut into fields."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..errors import UserError
from .header import Doubt, default_names, header_names, is_header

log = logging.getLogger(__name__)

# GLUE's QQP holds a few rows broken by tabs and line ends inside questions; everybody's reader leaves them out
# (`datasets` and TFDS alike), so scores are comparable only if ours does.
BROKEN_AT_THE_SOURCE = frozenset({("id", "qid1", "qid2", "question1", "question2", "is_duplicate")})


def records(
    source: str, rows: Iterable[tuple[int, list[str]]], header: bool | None, separator: str
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Name the fields of each (line, fields); rows of another width than the first are refused."""
    names: tuple[str, ...] | None = None
    doubt: Doubt | None = None
    count = broken = 0
    for line, fields in rows:
        if names is None:
            if header or (header is None and is_header(fields)):
                names = header_names(fields, f"{source}:{line}")
                continue
            names = default_names(len(fields))
            if header is None and "label" in names:
                doubt = Doubt(fields, f"{source}:{line}")
        if len(fields) != len(names):
            if names in BROKEN_AT_THE_SOURCE:
                broken += 1
                continue
            raise UserError(
                f"The row has {len(fields)} fields, {len(names)} expected ({', '.join(names)}).",
                where=f"{source}:{line}",
                hint=f"Check for a stray or missing {separator}.",
            )
        count += 1
        if doubt is not None and count > 1:
            doubt.look_at(fields[-1])
        yield line, dict(zip(names, fields, strict=True))
    if broken:
        log.warning("%s: %d broken rows left out, as is usual for this corpus.", source, broken)
    if doubt is not None:
        doubt.settle()
    if not count:
        raise UserError("The file has a header but no rows.", where=source)
