"""`auto`: a ladder of candidates that ends when the wish is met, the score falls or time is up."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tersely
from compressible import Place
from tersely.errors import UserError

Places = Callable[..., Place]
QUICK: dict[str, Any] = {"algo_list": "mse", "calibration_rows": 16, "engines": "onnxruntime"}


class Said:
    """Progress that remembers lines and titles."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.titles: list[str] = []

    @contextmanager
    def track(self, title: str, total: int) -> Any:
        self.titles.append(title)
        yield lambda count=1, note="": None

    def say(self, line: str) -> None:
        self.lines.append(line)


def run(place: Place, out: Path, said: Said, **options: Any) -> Any:
    return tersely.compress(
        place.folder, input_infer_model_path=place.graph, train_file=place.train, eval_file=place.dev, output_dir=out,
        strategy="auto", progress=said, **{**QUICK, **options},
    )  # fmt: skip


def test_a_bare_graph_gets_the_ladder_without_pruning(place: Places, tmp_path: Path) -> None:
    said = Said()
    result = run(place(), tmp_path / "out", said)
    assert {measured.candidate.plan.name for measured in result.candidates} == {"ptq+embeddings"}
    assert result.rungs[0].title == "ptq+embeddings"
    assert any("cannot be pruned" in line for line in said.lines)
    content = json.loads((tmp_path / "out" / "result.json").read_text())
    assert content["max_drop"] == 0.01  # one point, where none was named
    assert content["not_tried"] == []
    assert content["target"] is None


def test_what_is_tried_and_how_long_is_said_before_it_starts(place: Places, tmp_path: Path) -> None:
    said = Said()
    run(place(), tmp_path / "out", said, max_minutes=30)
    first = next(number for number, line in enumerate(said.lines) if line.startswith("To be tried, in about "))
    assert "it ends after 30" in said.lines[first]
    assert said.lines[first + 1].startswith("  ptq+embeddings: about ")
    assert all(title.startswith("[") and " min]" in title for title in said.titles)


def test_a_time_in_which_nothing_can_be_made_is_refused(place: Places, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="first candidate takes about") as refused:
        run(place(), tmp_path / "out", Said(), max_minutes=0.001)
    assert refused.value.option == "max_minutes"
    assert not (tmp_path / "out").exists() or not any((tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"strategy": "prune"}, "needs to know how far to prune"),
        ({"strategy": "prune", "target_speedup": 0.5}, "above 1"),
        ({"strategy": ["auto", "ptq"]}, "not both"),
        ({"strategy": "auto", "eval_file": None}, "needs eval rows"),
        ({"strategy": "prune", "target_speedup": 2, "input_infer_model_path": True}, "prune"),
        ({"strategy": "prune+dynabert", "target_speedup": 2, "width_mult_list": "1/2"}, "'width_mult_list'"),
        ({"strategy": "ptq", "target_speedup": 2}, "'target_speedup' option .* has no effect"),
    ],
)
def test_what_cannot_be_is_refused_before_work(
    options: dict[str, Any], says: str, place: Places, tmp_path: Path
) -> None:
    here = place()
    keywords = {"train_file": here.train, "eval_file": here.dev, **options}
    if keywords.get("input_infer_model_path"):
        keywords["input_infer_model_path"] = here.graph
    with pytest.raises(UserError, match=says):
        tersely.compress(here.folder, output_dir=tmp_path / "out", **keywords)
    assert not (tmp_path / "out").exists()
