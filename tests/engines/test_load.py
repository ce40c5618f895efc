"""Refusals of `load`, each before anything heavy happens."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import onnx
import pytest
from onnx import TensorProto, helper

from tersely import engines
from tersely.engines import cpu, installed, load
from tersely.errors import UserError

GRAPH_ENGINES = ("onnxruntime", "openvino")


def identity(path, kind=TensorProto.INT64):
    value = helper.make_tensor_value_info("input_ids", kind, ["batch", "length"])
    output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "length"])
    node = helper.make_node("Cast", ["input_ids"], ["logits"], to=TensorProto.FLOAT)
    graph = helper.make_graph([node], "graph", [value], [output])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


def test_unknown_engine_names_the_nearest():
    with pytest.raises(UserError, match=r"no engine 'onnxruntme'. Did you mean 'onnxruntime'"):
        load("onnxruntme", "model.onnx")


@pytest.mark.parametrize("name", GRAPH_ENGINES)
def test_missing_file_is_named(name, tmp_path):
    with pytest.raises(UserError, match=r"absent.onnx"):
        load(name, tmp_path / "absent.onnx")
    with pytest.raises(UserError, match="not a file"):
        load(name, tmp_path)


@pytest.mark.parametrize("name", GRAPH_ENGINES)
@pytest.mark.parametrize("content", [b"", b"this is not protobuf at all", b"\x08\x0a\x12\x04half"])
def test_corrupt_graph_is_refused(name, content, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(UserError, match="cannot load this graph") as caught:
        load(name, path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", GRAPH_ENGINES)
def test_truncated_graph_is_refused(name, tmp_path):
    path = identity(tmp_path / "model.onnx")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match="cannot load this graph"):
        load(name, path)


@pytest.mark.parametrize("name", GRAPH_ENGINES)
def test_graph_with_float_inputs_is_refused(name, tmp_path):
    with pytest.raises(UserError, match=r"'input_ids' is of type .*, not integer"):
        load(name, identity(tmp_path / "model.onnx", TensorProto.FLOAT))


@pytest.mark.parametrize("name", GRAPH_ENGINES)
def test_threads_default_to_the_cores_at_hand(name, tmp_path):
    assert load(name, identity(tmp_path / "model.onnx")).threads == cpu().cores


@pytest.mark.parametrize("threads", [0, -1])
def test_thread_count_below_one_is_refused(threads, tmp_path):
    with pytest.raises(UserError, match=f"at least 1. Got '{threads}'"):
        load("onnxruntime", tmp_path, threads=threads)


def test_providers_are_passed_on_or_refused_by_name(tmp_path):
    path = identity(tmp_path / "model.onnx")
    assert load("onnxruntime", path, providers=[("CPUExecutionProvider", {})]).threads
    with pytest.raises(UserError, match=r"no provider 'CPUExecutionProvder'. Did you mean 'CPUExecutionProvider'"):
        load("onnxruntime", path, providers=["CPUExecutionProvder"])
    with pytest.raises(UserError, match="takes no providers"):
        load("openvino", path, providers=["CPUExecutionProvider"])


def test_bf16_runs_where_the_cpu_has_it_and_is_refused_elsewhere(tmp_path):
    import openvino

    path = identity(tmp_path / "model.onnx")
    if "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        assert load("openvino", path, precision="bf16").precision == "bf16"
    else:
        with pytest.raises(UserError, match="needs bfloat16 arithmetic"):
            load("openvino", path, precision="bf16")
    with pytest.raises(UserError, match="'onnxruntime' does not offer the precision 'bf16'"):
        load("onnxruntime", path, precision="bf16")
    with pytest.raises(UserError, match="not offer the precision 'fp16'"):
        load("onnxruntime", path, precision="fp16")


def test_missing_package_gives_the_pip_line(monkeypatch, tmp_path):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "openvino" else find(name))
    with pytest.raises(UserError, match='pip install "openvino>='):
        load("openvino", tmp_path / "model.onnx")
    assert "openvino" not in installed()
    assert "onnxruntime" in installed()


def test_graph_engines_import_neither_torch_nor_transformers(tmp_path):
    path = identity(tmp_path / "model.onnx")
    code = (
        "import sys, tersely.engines as e; e.installed(); e.cpu()\n"
        f"for n in {GRAPH_ENGINES}: e.load(n, {str(path)!r}, threads=1)\n"
        "sys.exit(1 if {'torch', 'transformers'} & set(sys.modules) else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_table_names_classes_that_exist():
    for name, entry in engines.ENGINES.items():
        module = importlib.import_module(f"tersely.engines.{name}")
        assert getattr(module, entry.type).name == name
