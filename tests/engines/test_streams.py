"""Several threads are answered at once, each with its own batch's logits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tiny_artifacts
from tersely import engines, runtime
from tersely.errors import UserError

BATCHES = [
    {"input_ids": np.full((rows, 8), token, np.int64), "attention_mask": np.ones((rows, 8), np.int64)}
    for rows, token in ((1, 5), (2, 9), (4, 30), (1, 70))
]


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_threads_get_their_own_logits(engine, tmp_path):
    folder = tiny_artifacts.make(tmp_path / "text")
    alone = runtime.load(folder, engine, threads=1).engine
    expected = [alone.run(batch)[0] for batch in BATCHES]
    several = runtime.load(folder, engine, threads=1, streams=2).engine
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda i: several.run(BATCHES[i % 4])[0], range(80)))
    for i, logits in enumerate(found):
        assert logits == pytest.approx(expected[i % 4], abs=1e-5)


def test_torch_has_one(model_folder):
    with pytest.raises(UserError, match="one stream"):
        engines.load("torch", model_folder(), streams=2)
