"""`mse`: the threshold of least squared error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..statistics import Distribution, Statistics
from .calibrator import Floats, between, least_error, sums_between


@dataclass(frozen=True)
class Mse:
    """T = the share of max |x|, 0.30 to 1.00, of least squared error in 8 bits over all samples together.

    (PaddleNLP keeps the threshold of whichever batch was easiest.)
    """

    name: ClassVar[str] = "mse"

    def settle(self, statistics: Statistics) -> float:
        """The threshold of least summed (x − x̂)²."""
        return least_error(statistics, _squared)


def _squared(distribution: Distribution, codes: Floats) -> Floats:
    count, first, second = sums_between(distribution, between(codes))
    return np.asarray((second - 2 * codes * first + codes**2 * count).sum(axis=1))
