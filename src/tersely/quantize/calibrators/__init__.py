"""Calibrators by the name that `--algo_list` takes: one file and one line each."""

from __future__ import annotations

from ...errors import UserError, nearest
from .abs_max import AbsMax
from .avg import Avg
from .calibrator import Calibrator, range_of
from .emd import Emd
from .hist import Hist
from .kl import KL
from .min_max import MinMax
from .mse import Mse

__all__ = ["CALIBRATORS", "KL", "AbsMax", "Avg", "Calibrator", "Emd", "Hist", "MinMax", "Mse", "find", "range_of"]

CALIBRATORS: dict[str, Calibrator] = {
    calibrator.name: calibrator for calibrator in (KL(), AbsMax(), MinMax(), Avg(), Hist(), Mse(), Emd())
}


def find(name: str) -> Calibrator:
    """The calibrator of this name.

    >>> find("hist")
    Hist(share=0.9999)
    >>> find("kl")
    Traceback (most recent call last):
    tersely.errors.UserError: There is no calibration algorithm 'kl'. Did you mean 'KL'?
    """
    if name not in CALIBRATORS:
        meant = {known.lower(): known for known in CALIBRATORS}.get(name.lower(), name)
        raise UserError(f"There is no calibration algorithm '{name}'.", hint=nearest(meant, CALIBRATORS))
    return CALIBRATORS[name]
