"""Which weights of each width are kept: the best, of equal ones the later; zero and NaN are scores like any other."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from tersely.measure.score import Answers, Score
from tersely.models.carve import carve, shape_for, shape_of
from tersely.models.families import find
from tersely.models.folder import open_folder
from tersely.models.torch_folder import load_module
from tersely.training.checkpoints import KeepBest, score_from_json, score_to_json
from tersely.training.model_folder import save_carved


@pytest.fixture
def folder(prunable):
    return open_folder(prunable())


@pytest.fixture
def carved(folder):
    model = load_module(folder.path)
    return carve(model, find(model), shape_for(shape_of(model, find(model)), Fraction(1, 2)))


def writer(folder):
    return lambda model, place: save_carved(model, place, source=folder.path, overwrite=True)


def scored(value: float) -> Score:
    return Score("accuracy", value, (0.0, 1.0), {"accuracy": value}, Answers(10, 0.1, ["a"], []))


@pytest.mark.parametrize(
    ("values", "best"),
    [
        ([0.5, 0.7, 0.6], 2),
        ([0.5, 0.5, 0.4], 2),
        ([0.0, 0.0], 2),
        ([0.0], 1),
        ([math.nan, 0.1], 2),
        ([0.1, math.nan], 1),
    ],
)
def test_the_best_is_kept_and_of_equals_the_later(folder, carved, tmp_path, values, best):
    keep = KeepBest(tmp_path, folder.task, writer(folder))
    for number, value in enumerate(values):
        keep.offer("half", carved, number + 1, scored(value))
    assert keep.best["half"].folder == tmp_path / f"step-{best}" / "half"
    assert load_module(keep.best["half"].folder).config.tersely_shape == carved.config.tersely_shape


def test_of_equals_the_nearer_one_is_kept_also_by_a_run_that_goes_on(folder, tmp_path):
    def keeper() -> KeepBest:
        return KeepBest(tmp_path, folder.task, lambda _, place: place.mkdir(parents=True, exist_ok=True))

    keep = keeper()
    assert keep.offer("qat", None, 0, scored(0.5), 0.02)
    assert not keep.offer("qat", None, 1, scored(0.5), 0.03)
    keep.save(tmp_path / "record")
    again = keeper()
    again.load(tmp_path / "record")
    assert not again.offer("qat", None, 2, scored(0.5), 0.021)
    assert again.offer("qat", None, 3, scored(0.5), 0.01)
    assert again.offer("qat", None, 4, scored(0.6), 0.5), "a better score wins, however far"
    assert again.best["qat"].step == 4


def test_errors_are_better_the_smaller(prunable, tmp_path):
    folder = open_folder(prunable("bert", labels=1, problem_type="regression"))
    task = type(folder.task)(labels=folder.task.labels, problem="regression", metric="mse")
    keep = KeepBest(tmp_path, task, writer(folder), writes=False)
    assert [keep.offer("half", None, step, scored(value)) for step, value in ((1, 3.0), (2, 4.0), (3, 2.0))] == [
        True, False, True,
    ]  # fmt: skip


def test_what_was_replaced_stays_until_it_is_forgotten(folder, carved, tmp_path):
    keep = KeepBest(tmp_path, folder.task, writer(folder))
    for step in (1, 2):
        keep.offer("half", carved, step, scored(0.5))
        keep.offer("other", carved, step, scored(1 / step))
    names = [f"step-{step}/{name}" for step in (1, 2) for name in ("half", "other")]
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.glob("step-*/*"))] == [
        names[0], names[1], names[2],
    ]  # fmt: skip
    keep.forget_others()
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("step-*/*")) == [names[1], names[2]]


def test_a_record_is_read_back(folder, carved, tmp_path):
    keep = KeepBest(tmp_path, folder.task, writer(folder))
    keep.offer("half", carved, 3, scored(0.5))
    keep.save(tmp_path / "best.json")
    other = KeepBest(tmp_path, folder.task, writer(folder))
    other.load(tmp_path / "best.json")
    assert other.best["half"].folder == keep.best["half"].folder
    assert other.best["half"] == keep.best["half"]
    assert other.best["half"].step == 3
    assert other.best["half"].score == score_from_json(score_to_json(scored(0.5)))
    assert not other.offer("half", carved, 4, scored(0.4))


def test_only_one_process_writes(folder, carved, tmp_path):
    keep = KeepBest(tmp_path, folder.task, writer(folder), writes=False)
    assert keep.offer("half", carved, 1, scored(0.5))
    assert list(tmp_path.iterdir()) == []
