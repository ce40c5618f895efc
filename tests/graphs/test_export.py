"""What export promises beyond the numbers: clean files, repeatable bytes, an untouched model, clear refusals."""

from __future__ import annotations

import copy
import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
import torch

from models import build
from tersely.engines import load
from tersely.errors import Failure, UserError
from tersely.graphs.export import difference, export_onnx, sample_batches
from tersely.models.torch_folder import load_module

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return build(tmp_path_factory.mktemp("bert"))


def test_file_holds_no_paths_and_no_remarks(exported):
    graph = exported("bert").graph
    content = graph.read_bytes()
    for private in (b"site-packages", b".py", b"stack_trace", torch.__version__.encode(), b"pkg.torch"):
        assert private not in content, private
    assert [path.name for path in graph.parent.iterdir()] == ["model.onnx"]
    proto = onnx.load(graph)
    assert proto.ir_version <= 10  # what ONNX Runtime 1.20 reads
    assert not proto.graph.value_info


def test_another_process_writes_the_same_bytes(exported, tmp_path):
    _, folder, graph = exported("bert")
    code = "import sys; from tersely.graphs.export import export_onnx; export_onnx(sys.argv[1], sys.argv[2])"
    other = tmp_path / "other.onnx"
    done = subprocess.run(
        [sys.executable, "-c", code, folder, other],
        env=os.environ | {"PYTHONHASHSEED": "7"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert other.read_bytes() == graph.read_bytes()
    assert done.stdout + done.stderr == ""


def test_live_model_is_left_as_it_was(folder, tmp_path):
    module = load_module(folder).train()
    module.bert.encoder.layer[0].eval()
    modes = [part.training for part in module.modules()]
    config, state = copy.deepcopy(module.config.to_dict()), copy.deepcopy(module.state_dict())
    attention, places = module.config._attn_implementation, [p.data_ptr() for p in module.parameters()]
    rng, threads, grad = torch.get_rng_state(), torch.get_num_threads(), torch.is_grad_enabled()
    export_onnx(module, tmp_path / "model.onnx")
    assert [part.training for part in module.modules()] == modes
    assert module.config.to_dict() == config
    assert module.config._attn_implementation == attention
    assert [p.data_ptr() for p in module.parameters()] == places
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())
    assert all(p.requires_grad and p.grad is None for p in module.parameters())
    assert torch.equal(torch.get_rng_state(), rng)
    assert (torch.get_num_threads(), torch.is_grad_enabled()) == (threads, grad)


def test_int32_graph_takes_int32_and_agrees(folder, tmp_path):
    export_onnx(folder, tmp_path / "model.onnx", input_dtype="int32")
    proto = onnx.load(tmp_path / "model.onnx")
    assert {value.type.tensor_type.elem_type for value in proto.graph.input} == {onnx.TensorProto.INT32}
    module = load_module(folder)
    batches = sample_batches(module, ("input_ids", "attention_mask", "token_type_ids"))
    for name in ("onnxruntime", "openvino"):
        assert difference(module, load(name, tmp_path / "model.onnx", threads=1), batches)[0] < 1e-4


def test_equal_weights_of_two_layers_keep_their_own_names(folder, tmp_path):
    module = load_module(folder)
    module.bert.encoder.layer[1].load_state_dict(module.bert.encoder.layer[0].state_dict())
    export_onnx(module, tmp_path / "model.onnx")
    proto = onnx.load(tmp_path / "model.onnx")
    inputs = [
        name for node in proto.graph.node if node.op_type == "MatMul" for name in node.input if "encoder.layer" in name
    ]
    assert sum(name.startswith("bert.encoder.layer.0.") for name in inputs) == 6
    assert sum(name.startswith("bert.encoder.layer.1.") for name in inputs) == 6
    assert len(set(inputs)) == len(inputs)
    tensors = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    biases = [name for name, p in module.named_parameters() if p.ndim == 1]
    assert set(biases) <= set(tensors)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_model_of_another_precision_gives_its_weights_float_graph(folder, tmp_path, dtype):
    module = load_module(folder).to(torch.bfloat16).to(dtype)
    export_onnx(module, tmp_path / "model.onnx")
    assert {p.dtype for p in module.parameters()} == {dtype}
    engine = load("onnxruntime", tmp_path / "model.onnx", threads=1)
    assert difference(module.float(), engine, sample_batches(module, engine.inputs))[0] < 1e-4


def test_custom_module_with_two_outputs_is_exported(folder, tmp_path):
    class Pointers(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = load_module(folder).bert
            self.start, self.end = torch.nn.Linear(32, 1), torch.nn.Linear(32, 1)

        def forward(self, input_ids, token_type_ids=None, attention_mask=None):
            states = self.encoder(input_ids, attention_mask, token_type_ids).last_hidden_state
            return torch.sigmoid(self.start(states)).squeeze(-1), torch.sigmoid(self.end(states)).squeeze(-1)

    module = Pointers()
    export_onnx(module, tmp_path / "model.onnx", outputs=("start_prob", "end_prob"))
    engine = load("onnxruntime", tmp_path / "model.onnx", threads=1)
    assert engine.outputs == ("start_prob", "end_prob")
    assert difference(module, engine, sample_batches(module, engine.inputs))[0] < 1e-4


class Fickle(torch.nn.Module):
    """A forward that tracing freezes wrongly: the length goes through a Python number of the first batch only."""

    def __init__(self):
        super().__init__()
        self.table, self.calls = torch.nn.Embedding(50, 3), 0

    def forward(self, input_ids, attention_mask):
        self.calls += 1
        return (
            self.table(input_ids).mean(1) * (attention_mask.sum() > 0) * (1.0 if torch.compiler.is_exporting() else 2.0)
        )


def test_graph_that_disagrees_is_refused_and_removed(tmp_path):
    with pytest.raises(Failure, match="does not give the model's own logits"):
        export_onnx(Fickle(), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_nan_logits_are_refused(folder, tmp_path):
    module = load_module(folder)
    with torch.no_grad():
        module.classifier.bias.fill_(float("nan"))
    with pytest.raises(Failure, match="nan"):
        export_onnx(module, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_weights_too_large_for_one_file_lie_beside_the_graph(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("tersely.graphs.export._PROTOBUF_LIMIT", 1000)
    export_onnx(folder, tmp_path / "model.onnx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "model.onnx.data"]
    onnx.checker.check_model(tmp_path / "model.onnx", full_check=True)
    module = load_module(folder)
    for name in ("onnxruntime", "openvino"):
        engine = load(name, tmp_path / "model.onnx", threads=1)
        assert difference(module, engine, sample_batches(module, engine.inputs))[0] < 1e-4


def test_unknown_input_dtype_is_refused(folder, tmp_path):
    with pytest.raises(UserError, match=r"int64 or int32. Got 'int16'"):
        export_onnx(folder, tmp_path / "model.onnx", input_dtype="int16")


def test_parity_sees_a_shift_and_passes_over_padding(exported):
    _, folder, graph = exported("bert", "TokenClassification")
    module = load_module(folder)
    engine = load("onnxruntime", graph, threads=1)
    batches = sample_batches(module, engine.inputs)
    assert difference(module, engine, batches)[0] < 1e-4
    with torch.no_grad():
        module.classifier.bias[1] += 0.5
    assert difference(module, engine, batches)[0] == pytest.approx(0.5, abs=1e-4)
    rows = dict(batches[0])
    (logits,) = engine.run(rows)
    assert np.isfinite(logits).all()
