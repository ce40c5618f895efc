"""`check_calibrator`: tries a calibrator on tensors of every kind that breaks careless ones."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from ..quantize.calibrators import Calibrator
from ..quantize.statistics import Statistics

Sample = NDArray[np.float32]

# A threshold from a histogram may differ by this share where it ought to be equal: rounding, no more.
ROUNDING = 1e-6


def check_calibrator(calibrator: Calibrator) -> None:
    """Try a calibrator on generated tensors; AssertionError says which property it breaks, and on what.

    Its thresholds must be finite, from 0 to the largest magnitude, also for tensors that are empty, constant, of one
    sign or hold one huge value; scale with the values; and depend on nothing but the values: not on their order, on
    the cut into batches or on what was settled before. 0.3 s.

    >>> from tersely.quantize.calibrators import Hist
    >>> check_calibrator(Hist(share=0.999))
    """
    tensors = _tensors(np.random.default_rng(0))
    name = getattr(calibrator, "name", None)
    _expect(isinstance(name, str) and name != "", f"A calibrator needs a name. Got {name!r}.")
    thresholds = {kind: _check_bounds(calibrator, kind, _observed(samples)) for kind, samples in tensors.items()}
    for kind, samples in tensors.items():
        _check_independence(calibrator, kind, samples, thresholds[kind])
        _check_scale(calibrator, kind, samples, thresholds[kind])


def _check_bounds(calibrator: Calibrator, kind: str, statistics: Statistics) -> float:
    before = copy.deepcopy(vars(statistics.histogram)), statistics.low, statistics.high
    threshold = _settle(calibrator, kind, statistics)
    after = vars(statistics.histogram), statistics.low, statistics.high
    _expect(
        bool(np.array_equal(before[0]["counts"], after[0]["counts"])) and before[1:] == after[1:],
        f"'{calibrator.name}' changes the statistics of {kind}; it may only read them.",
    )
    got = f"Got {threshold} for {kind}."
    _expect(math.isfinite(threshold), f"'{calibrator.name}' must give a finite threshold. {got}")
    _expect(threshold >= 0, f"'{calibrator.name}' must give a threshold from 0 up. {got}")
    _expect(
        threshold <= statistics.largest * (1 + ROUNDING),
        f"'{calibrator.name}' must give at most the largest magnitude, {statistics.largest}. {got}",
    )
    return threshold


def _check_independence(calibrator: Calibrator, kind: str, samples: Sequence[Sample], expected: float) -> None:
    shuffled = [np.random.default_rng(1).permutation(sample) for sample in samples]
    batches, rest = _observed(samples[:1]), Statistics()
    for sample in samples[1:]:
        rest.merge(_observed([sample]))
    batches.merge(rest)
    for what, statistics in (
        ("what was settled before", _observed(samples)),
        ("the order of samples", _observed(samples[::-1])),
        ("the order of tokens in a sample", _observed(shuffled)),
        ("the cut into batches", batches),
    ):
        threshold = _settle(calibrator, kind, statistics)
        _same(calibrator, threshold, expected, f"must not depend on {what} ({kind})")


def _check_scale(calibrator: Calibrator, kind: str, samples: Sequence[Sample], expected: float) -> None:
    # By powers of two, which change no digit: a search may have two equal minima and take either at other factors.
    for factor in (2.0**-12, 2.0**10):
        scaled = _settle(calibrator, kind, _observed([sample * np.float32(factor) for sample in samples]))
        _same(calibrator, scaled / factor, expected, f"must scale with the values (factor {factor}, {kind})")


def _settle(calibrator: Calibrator, kind: str, statistics: Statistics) -> float:
    try:
        threshold = calibrator.settle(statistics)
    except Exception as error:
        raise AssertionError(f"'{calibrator.name}' fails on {kind}: {type(error).__name__}: {error}") from error
    _expect(isinstance(threshold, Real), f"'{calibrator.name}' must give a number. Got {threshold!r} for {kind}.")
    return float(threshold)


def _same(calibrator: Calibrator, got: float, expected: float, must: str) -> None:
    close = math.isclose(got, expected, rel_tol=ROUNDING)
    _expect(close, f"The threshold of '{calibrator.name}' {must}. Got {got} instead of {expected}.")


def _expect(holds: bool, sentence: str) -> None:
    if not holds:
        raise AssertionError(sentence)


def _observed(samples: Sequence[Sample]) -> Statistics:
    statistics = Statistics()
    if samples:
        statistics.observe(np.concatenate(samples), np.array([len(sample) for sample in samples]))
    return statistics


def _tensors(random: np.random.Generator) -> dict[str, list[Sample]]:
    """Samples [tokens, 16] of every kind that breaks careless calibrators, by how a message calls it."""

    def made(draw: Callable[[tuple[int, int]], NDArray[np.float64]]) -> list[Sample]:
        return [draw((tokens, 16)).astype(np.float32) for tokens in (40, 7, 90, 1, 62)]

    normal, heavy = made(random.standard_normal), made(lambda shape: random.standard_t(2, shape))
    outlier = [sample.copy() for sample in normal]
    outlier[2][3, 5] = 1e4
    broken = [sample.copy() for sample in normal]
    broken[0][:2, 0] = np.nan, np.inf
    return {
        "a normal tensor": normal,
        "a heavy-tailed tensor": heavy,
        "a tensor after GELU": [np.maximum(sample, -sample / 20) for sample in normal],
        "a tensor of probabilities": made(random.random),
        "a negative tensor": [-np.abs(sample) - 1 for sample in normal],
        "a tensor with one outlier": outlier,
        "a tensor with NaN and infinity": broken,
        "a constant tensor": made(lambda shape: np.full(shape, 0.7)),
        "a negative constant tensor": made(lambda shape: np.full(shape, -2.0)),
        "a tensor of zeros": made(np.zeros),
        "a single value": [np.full((1, 1), 3, np.float32)],
        "a tensor of tiny values": [sample * np.float32(1e-25) for sample in normal],
        "a tensor of huge values": [sample * np.float32(1e30) for sample in normal],
        "a tensor of NaN alone": made(lambda shape: np.full(shape, np.nan)),
        "a tensor without tokens": made(lambda shape: np.zeros((0, shape[1]))),
        "a tensor never seen": [],
    }
