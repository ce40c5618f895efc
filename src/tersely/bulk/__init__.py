"""Bulk prediction: files larger than memory, in parts, by one runtime or by many."""

from .job import Job, answerer, fingerprint
from .processes import Processes
from .read_parts import LineRows, Part, RowFile
from .run import answer_file, one_by_one, ray_actors
from .teamwork import answered
from .write_parts import format_of

__all__ = [
    "Job",
    "LineRows",
    "Part",
    "Processes",
    "RowFile",
    "answer_file",
    "answered",
    "answerer",
    "fingerprint",
    "format_of",
    "one_by_one",
    "ray_actors",
]
