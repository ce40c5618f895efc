"""parquet, through pyarrow; class names that `datasets` wrote into the file are used."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import UserError, missing_package
from .dataset import with_names
from .rows import opened

MARK = b"PAR1"
ROWS = 1024
"""Rows in memory at once: as Python objects they take many times what they take in the file."""


def records(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Give (row number, record), numbers from 1."""
    with opened(path) as file:
        if file.read(4) != MARK:
            raise UserError("The file is not parquet.", where=str(path), hint="Check the suffix, or say the format.")
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise missing_package("pyarrow", "reading parquet", extra="compress") from error
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            named = class_names(file.schema_arrow.metadata or {})
            for batch in file.iter_batches(batch_size=ROWS):
                for record in batch.to_pylist():
                    number += 1
                    yield number, with_names(record, named, f"{path}:{number}")
    except (pyarrow.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"The parquet file cannot be read: {reason}", where=str(path)) from error
    if not number:
        raise UserError("The file holds no rows.", where=str(path))


def class_names(metadata: Mapping[bytes, bytes]) -> dict[str, list[str]]:
    """Read the classes' names from the note that `datasets` leaves in the schema.

    >>> class_names({b"huggingface": b'{"info": {"features": {"label": {"names": ["no", "yes"]}}}}'})
    {'label': ['no', 'yes']}
    """
    if b"huggingface" not in metadata:
        return {}
    features = json.loads(metadata[b"huggingface"]).get("info", {}).get("features", {})
    found = {}
    for column, feature in features.items():
        parts = (feature, feature.get("feature")) if isinstance(feature, dict) else ()
        for part in parts:
            if isinstance(part, dict) and part.get("names"):
                found[column] = list(part["names"])
    return found
