"""Files to rows: one file per format; `read` is the door, `Rows` is all that comes out."""

from .dataset import from_dataset
from .labels import discover_labels, labels_beside
from .locate import find_split, locate, split_file
from .read import FORMATS, LineRows, Part, RowFile, RowSource, iter_records, read, read_dataset, rows_of, texts_of
from .rows import Rows

__all__ = [
    "FORMATS",
    "LineRows",
    "Part",
    "RowFile",
    "RowSource",
    "Rows",
    "discover_labels",
    "find_split",
    "from_dataset",
    "iter_records",
    "labels_beside",
    "locate",
    "read",
    "read_dataset",
    "rows_of",
    "split_file",
    "texts_of",
]
