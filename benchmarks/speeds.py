"""Time predictors in one alternating run, against the fastest FP32 engine among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tersely.engines.engine import Batch
from tersely.measure.benchmark import Contestant, alternate, full_batch
from tersely.runtime import Predictor

FP32 = "FP32"
BATCHES = (1, 16)


def runs(predictor: Predictor, batch: Batch) -> Callable[[], Any]:
    """One unit of work: the batch through the predictor's engine."""
    return lambda: predictor.engine.run(batch)


def times_faster(found: Mapping[str, Predictor], length: int, seconds: float) -> dict[str, list[str]]:
    """× the fastest of those whose name begins with FP32, for each of BATCHES."""
    tokens = min(predictor.encoder.vocab_size for predictor in found.values())
    ratios: dict[str, list[str]] = {what: [] for what in found}
    for rows in BATCHES:
        batch = full_batch(rows, length, tokens)
        contestants = [
            Contestant(what, predictor.engine.name, runs(predictor, batch)) for what, predictor in found.items()
        ]
        timings = alternate(contestants, contestants[0].label, seconds=seconds)
        fastest = max(timing.ratio for timing in timings if timing.model.startswith(FP32))
        for timing in timings:
            ratios[timing.model].append(f"{timing.ratio / fastest:.2f}")
    return ratios
