"""One contract, every engine: the same logits, whatever the batch, and nothing outside the engine touched."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from models import build
from tersely.engines import ENGINES, Engine, load
from tersely.errors import UserError
from tersely.models.torch_folder import load_module

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def sources(tmp_path_factory) -> dict[str, Path]:
    from tersely.graphs.export import export_onnx

    folder = build(tmp_path_factory.mktemp("bert"), head="TokenClassification")
    export_onnx(folder, folder / "model.onnx")
    return {"onnxruntime": folder / "model.onnx", "openvino": folder / "model.onnx", "torch": folder}


def opened(name: str, path: Path, threads: int) -> Engine:
    """Load a graph, or for torch the module of a folder."""
    return load(name, load_module(path) if name == "torch" else path, threads=threads)


@pytest.fixture(params=list(ENGINES), scope="module")
def engine(request, sources):
    return opened(request.param, sources[request.param], 2)


def make(rows: int, length: int, seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    ids = generator.integers(5, 150, (rows, length))
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("length", [1, 3, 17, 64])
def test_logits_are_those_of_the_plain_model(engine, sources, rows, length):
    from transformers import AutoModelForTokenClassification

    batch = make(rows, length)
    module = AutoModelForTokenClassification.from_pretrained(sources["torch"]).eval()
    with torch.no_grad():
        expected = module(**{name: torch.from_numpy(array) for name, array in batch.items()}).logits.numpy()
    (logits,) = engine.run(batch)
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, expected, atol=1e-4)


def test_no_thread_is_bound_to_a_core(engine):
    """Each of several processes would take the same one."""
    allowed, found = os.sched_getaffinity(0), set()
    batch, over = make(16, 64), threading.Event()

    def work() -> None:
        while not over.is_set():
            engine.run(batch)

    worker = threading.Thread(target=work)
    worker.start()
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        found.add(frozenset(os.sched_getaffinity(worker.native_id)))
    over.set()
    worker.join()
    assert found == {frozenset(allowed)}


def test_padding_changes_nothing(engine):
    batch = make(2, 9)
    padded = {name: np.pad(array, ((0, 0), (0, 8))) for name, array in batch.items()}
    np.testing.assert_allclose(engine.run(padded)[0][:, :9], engine.run(batch)[0], atol=1e-5)


def test_rows_do_not_see_each_other(engine):
    batch = make(5, 12)
    together = engine.run(batch)[0]
    for row in range(5):
        alone = engine.run({name: array[row : row + 1] for name, array in batch.items()})[0]
        np.testing.assert_allclose(alone[0], together[row], atol=1e-5)


def test_same_batch_gives_the_same_bits(engine):
    assert np.array_equal(engine.run(make(3, 20))[0], engine.run(make(3, 20))[0])


def test_later_runs_leave_earlier_results_alone(engine):
    first = engine.run(make(3, 20))[0]
    kept = first.copy()
    for seed in range(1, 4):
        engine.run(make(3, 20, seed))
    assert np.array_equal(first, kept)
    first += 1  # the caller's own, to write to


def test_extra_inputs_are_passed_over(engine):
    extra = make(2, 7) | {"position_ids": np.zeros((2, 7), np.int64), "labels": np.zeros(2, np.int64)}
    assert np.array_equal(engine.run(extra)[0], engine.run(make(2, 7))[0])


@pytest.mark.parametrize("dtype", [np.int32, np.uint16, np.int64])
def test_integers_of_any_kind_are_taken(engine, dtype):
    batch = {name: array.astype(dtype) for name, array in make(2, 7).items()}
    assert np.array_equal(engine.run(batch)[0], engine.run(make(2, 7))[0])


def test_arrays_that_are_not_contiguous_are_taken(engine):
    wide = make(4, 14)
    strided = {name: array[::2, ::2] for name, array in wide.items()}
    copied = {name: array.copy() for name, array in strided.items()}
    assert np.array_equal(engine.run(strided)[0], engine.run(copied)[0])


def test_missing_input_is_named(engine):
    batch = make(2, 7)
    del batch["attention_mask"]
    with pytest.raises(UserError, match="'attention_mask', which the batch does not have"):
        engine.run(batch)


def test_engine_says_what_it_is(engine):
    assert engine.name in ENGINES
    assert (engine.precision, engine.threads) == ("fp32", 2)
    assert engine.inputs == ("input_ids", "attention_mask", "token_type_ids")
    assert engine.outputs == ("logits",)


def test_callers_in_several_threads_get_their_own_answers(engine):
    expected = [engine.run(make(2, 11, seed))[0] for seed in range(8)]
    found: dict[int, np.ndarray] = {}
    workers = [
        threading.Thread(target=lambda s=seed: found.update({s: engine.run(make(2, 11, s))[0]})) for seed in range(8)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for seed in range(8):
        np.testing.assert_allclose(found[seed], expected[seed], atol=1e-5)


@pytest.mark.parametrize("name", list(ENGINES))
def test_thread_count_is_the_engines_own(name, sources):
    before = torch.get_num_threads()
    results = []
    for threads in (1, 2):
        engine = opened(name, sources[name], threads)
        assert engine.threads == threads
        results.append(engine.run(make(2, 30))[0])
        assert torch.get_num_threads() == before
    np.testing.assert_allclose(*results, atol=1e-5)
