"""What loading costs, measured in a process of its own."""

from __future__ import annotations

import pytest

from tersely.errors import Failure
from tersely.measure.footprint import footprint
from tiny_artifacts import PLAIN, Numpy

pytestmark = pytest.mark.slow


def test_footprint_of_a_graph_is_plausible(artifact_folder):
    found = footprint("onnxruntime", artifact_folder() / "onnx/model.onnx", length=64)
    assert 0 < found.load_seconds < 20
    assert 20 < found.memory_mb <= found.peak_memory_mb * 1.01 < 2000


def test_footprint_of_a_model_folder_on_torch_is_larger(artifact_folder, model_folder):
    graph = footprint("onnxruntime", artifact_folder() / "onnx/model.onnx", length=64)
    folder = footprint("torch", model_folder(), length=64)
    assert folder.memory_mb > graph.memory_mb


def test_footprint_of_a_model_with_few_tokens_is_found(tmp_path):
    (tmp_path / PLAIN).parent.mkdir()
    Numpy(8, "text").write(tmp_path / PLAIN)
    assert footprint("onnxruntime", tmp_path / PLAIN).memory_mb > 20


@pytest.mark.parametrize(
    ("engine", "name", "message"),
    [
        ("onnxruntime", "absent.onnx", r"footprint of onnxruntime failed: .*absent.onnx: There is no such ONNX file"),
        ("onnxruntme", "model.onnx", r"There is no engine 'onnxruntme'. Did you mean 'onnxruntime'"),
    ],
)
def test_failure_says_why_in_one_line(tmp_path, engine, name, message):
    with pytest.raises(Failure, match=message) as caught:
        footprint(engine, tmp_path / name)
    assert "\n" not in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_length_that_the_model_cannot_take_is_a_failure(artifact_folder):
    with pytest.raises(Failure, match="footprint of onnxruntime failed"):
        footprint("onnxruntime", artifact_folder() / "onnx/model.onnx", length=4096)
