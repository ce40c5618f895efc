"""The features that calibration runs, as sets of rows that nest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..tasks import Feature


@dataclass(frozen=True)
class Samples:
    """Features that calibrate, in order; those that judge; and how many of the former belong to each set of rows.

    `sets`: features by the set's name, nested. `batches`: for moving averages, where each of a set's batches ends.
    """

    features: Sequence[Feature]
    judging: Sequence[Feature]
    sets: Mapping[str, int]
    pad_id: int
    batches: Mapping[str, Sequence[int]] | None = None
