"""Every layout for other tools: it answers as the artifact does, is complete or absent, and refuses in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiny_artifacts
from tersely import runtime
from tersely.artifact import Graph, read
from tersely.deploy.layouts import Layout, OpenVinoLayout, TritonLayout, lay_out
from tersely.errors import Failure, UserError
from tersely.measure.check import check
from tersely.tasks.sequence_classification import TextExample

INPUTS: dict[str, Any] = {
    "text": ["A film of quiet grace.", ("The old river", "Paris and Berlin")],
    "tags": ["Paris is the capital of France."],
    "question": [("What is the capital?", "Paris is the capital of France; Berlin, that of Germany.")],
}
LAYOUTS: dict[str, Callable[[], Layout]] = {"openvino": OpenVinoLayout, "triton": lambda: TritonLayout("model")}


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """An artifact by task and precision. Not to be written to."""
    place, made = tmp_path_factory.mktemp("artifacts"), {}

    def make(kind: str = "text", precision: str = "fp32") -> Path:
        if (kind, precision) not in made:
            write = tiny_artifacts.make if precision == "fp32" else tiny_artifacts.make_int8
            made[kind, precision] = write(place / f"{kind}-{precision}", kind)
        return made[kind, precision]

    return make


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("form", LAYOUTS)
def test_layout_answers_as_the_artifact_does(
    form: str, kind: str, precision: str, artifact: Callable[..., Path], tmp_path: Path
) -> None:
    parent, layout = read(artifact(kind, precision)), LAYOUTS[form]()
    done = lay_out(parent, tmp_path / "out", layout)
    assert done.difference <= 1e-6
    folder = done.artifact.folder
    assert [graph.precision for graph in done.artifact.manifest.graphs] == [precision]
    assert done.artifact.manifest.parents[-1] == f"sha256:{parent.manifest.files[done.source.path]}"
    assert [(replay.verdict, replay.engine) for replay in check(folder, threads=1)] == [("ok", layout.engine)]
    ours, theirs = (runtime.load(place, layout.engine, 1) for place in (folder, parent.folder))
    if precision == "fp32":  # of INT8 the engine has a graph of its own, which rounds elsewhere
        assert ours.predict(INPUTS[kind]) == theirs.predict(INPUTS[kind])
    assert not (folder / "onnx").exists()


@pytest.mark.parametrize("form", LAYOUTS)
def test_layout_is_scored_on_the_rows_given_and_not_without(
    form: str, artifact: Callable[..., Path], tmp_path: Path
) -> None:
    parent, layout = read(artifact()), LAYOUTS[form]()
    texts = ["A film of quiet grace.", "Paris and Berlin.", "The old river bank.", "What did the company say?"]
    said = [answer.value for answer in runtime.load(parent.folder, "onnxruntime", 1).predict(texts)]
    golds = [said[0], said[1], said[2], (said[3] + 1) % 3]
    examples = [TextExample(text, gold=gold) for text, gold in zip(texts, golds, strict=True)]
    scored = lay_out(parent, tmp_path / "scored", layout, examples=examples)
    note = scored.artifact.manifest.score
    assert note is not None
    assert (note["value"], note["rows"], note["engine"]) == (0.75, 4, layout.engine)
    assert lay_out(parent, tmp_path / "bare", layout).artifact.manifest.score is None


@pytest.mark.parametrize("form", LAYOUTS)
def test_two_layouts_are_byte_equal_and_only_ours_are_replaced(
    form: str, artifact: Callable[..., Path], tmp_path: Path
) -> None:
    parent, layout = read(artifact("text", "int8")), LAYOUTS[form]()
    first = lay_out(parent, tmp_path / "first", layout).artifact
    assert lay_out(parent, tmp_path / "second", layout).artifact.manifest == first.manifest
    with pytest.raises(UserError, match="not empty"):
        lay_out(parent, tmp_path / "first", layout)
    again = lay_out(read(artifact()), tmp_path / "first", layout, overwrite=True).artifact
    assert again.manifest.graphs[0].precision == "fp32"
    (again.folder / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="did not write"):
        lay_out(parent, tmp_path / "first", layout, overwrite=True)


class Wrong(OpenVinoLayout):
    """Writes another model than the artifact's."""

    other: Path

    def write(self, opened: Any, graph: Graph, folder: Path) -> tuple[str, ...]:
        return super().write(read(self.other), graph, folder)


def test_other_answers_are_refused_and_nothing_is_left(artifact: Callable[..., Path], tmp_path: Path) -> None:
    Wrong.other = tiny_artifacts.make(tmp_path / "other", seed=1)
    with pytest.raises(Failure, match="does not give the artifact's answers: off by"):
        lay_out(read(artifact()), tmp_path / "out", Wrong())
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


@pytest.mark.parametrize("form", LAYOUTS)
def test_artifact_without_a_graph_that_stands_alone_is_refused(form: str, tmp_path: Path) -> None:
    folder = tiny_artifacts.make_int8(tmp_path / "artifact")
    own, shared = read(folder).manifest.graphs
    layout = LAYOUTS[form]()
    others = {"openvino": ("onnxruntime",), "triton": ("openvino",)}[form]
    leaning = Graph(own.path, ("onnxruntime", "openvino"), "int8", data=(shared.path,))
    tiny_artifacts.reseal(folder, graphs=(leaning, Graph(shared.path, others, "int8")))
    with pytest.raises(UserError, match=rf"no self-contained ONNX graph for the engine '{layout.engine}'.*Its graphs"):
        lay_out(read(folder), tmp_path / "out", layout)
    assert not (tmp_path / "out").exists()


def test_form_of_a_form_is_refused(artifact: Callable[..., Path], tmp_path: Path) -> None:
    laid = lay_out(read(artifact()), tmp_path / "ir", OpenVinoLayout()).artifact
    for layout in (OpenVinoLayout(), TritonLayout("x")):
        with pytest.raises(UserError, match="no self-contained ONNX graph"):
            lay_out(laid, tmp_path / "out", layout)


def test_probe_holds_the_logits_of_the_graph_that_is_there(artifact: Callable[..., Path], tmp_path: Path) -> None:
    laid = lay_out(read(artifact("text", "int8")), tmp_path / "ir", OpenVinoLayout()).artifact
    with np.load(laid.path("probe.npz")) as ours, np.load(artifact("text", "int8") / "probe.npz") as theirs:
        assert {name for name in ours.files if name.startswith("logits_")} == {
            "logits_fp32", "logits_int8_openvino_model",
        }  # fmt: skip
        assert np.array_equal(ours["logits_int8_openvino_model"], theirs["logits_int8_quantized"])
