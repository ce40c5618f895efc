"""Bulk prediction: files larger than memory, in parts, by one runtime or by many."""

from .ray_workers import ray_actors
from .run import Job, answer_file, answerer, fingerprint, one_by_one
from .teamwork import Processes, answered
from .write_parts import format_of

__all__ = [
    "Job",
    "Processes",
    "answer_file",
    "answered",
    "answerer",
    "fingerprint",
    "format_of",
    "one_by_one",
    "ray_actors",
]
