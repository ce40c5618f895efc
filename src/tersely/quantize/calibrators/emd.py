"""`emd`: the threshold of least earth-mover distance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..statistics import Distribution, Statistics
from .calibrator import Floats, between, least_error, sums_between


@dataclass(frozen=True)
class Emd:
    """T = the share of max |x|, 0.30 to 1.00, of least earth-mover distance between x and its 8-bit self.

    Rounding keeps the order of values, so that distance is the mean |x − x̂|.
    """

    name: ClassVar[str] = "emd"

    def settle(self, statistics: Statistics) -> float:
        """The threshold of least summed |x − x̂|."""
        return least_error(statistics, _moved)


def _moved(distribution: Distribution, codes: Floats) -> Floats:
    borders = np.empty((len(codes), 2 * codes.shape[1] - 1))
    borders[:, 0::2], borders[:, 1::2] = codes, between(codes)
    count, first, _ = sums_between(distribution, borders)
    # The values just below a code move up to it, those just above move down.
    up, down = slice(0, None, 2), slice(1, None, 2)
    return np.asarray((codes * count[:, up] - first[:, up] + first[:, down] - codes * count[:, down]).sum(axis=1))
