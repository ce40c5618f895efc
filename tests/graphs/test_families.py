"""Every family, every head: both engines give torch's logits, and the graph is one that other tools read."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from models import EVERY_FAMILY, FAMILIES, HEADS, MAX_LENGTH, ROBERTA_ITSELF
from tersely.engines import load
from tersely.graphs.export import difference
from tersely.models.torch_folder import load_module

pytestmark = pytest.mark.slow

CASES = [
    *((family, HEADS[0]) for family in FAMILIES if family not in ROBERTA_ITSELF),
    *(("bert", head) for head in HEADS[1:]),
    *(pytest.param(family, HEADS[0], marks=pytest.mark.long) for family in ROBERTA_ITSELF),
    *(pytest.param("deberta_v2", head, marks=pytest.mark.long) for head in HEADS[1:]),
    pytest.param("modernbert", HEADS[1], marks=pytest.mark.long),
]
SHAPES = ([1], [3], [17, 5], [MAX_LENGTH], [MAX_LENGTH, 1, 40], [9, 9, 9, 9], [33, 2, 3, 4, 5, 6, 7])
SEGMENTED = {"bert", "ernie", "electra", "albert"}


def batch(lengths: list[int], pad: int, seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    mask = (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.int64)
    ids = np.where(mask == 1, generator.integers(5, 120, mask.shape), pad)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": generator.integers(0, 2, mask.shape) * mask}


@pytest.mark.parametrize(("family", "head"), CASES, ids=lambda value: value)
def test_engines_give_torchs_logits_at_every_shape(exported, family, head):
    _, folder, graph = exported(family, head)
    module = load_module(folder)
    batches = [batch(lengths, module.config.pad_token_id) for lengths in SHAPES]
    for name in ("onnxruntime", "openvino"):
        assert difference(module, load(name, graph, threads=2), batches)[0] < 1e-4, name


@pytest.mark.parametrize(("family", "head"), CASES, ids=lambda value: value)
def test_graph_passes_checker_and_strict_shape_inference(exported, family, head):
    graph = exported(family, head).graph
    onnx.checker.check_model(graph, full_check=True)
    inferred = onnx.shape_inference.infer_shapes(onnx.load(graph), check_type=True, strict_mode=True, data_prop=True)
    dimensions = [[d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in inferred.graph.output]
    last = {"SequenceClassification": ["batch", 3], "TokenClassification": ["batch", "length", 3]}
    assert dimensions == ([["batch", "length"]] * 2 if head == "QuestionAnswering" else [last[head]])


@pytest.mark.parametrize(("family", "head"), CASES, ids=lambda value: value)
def test_inputs_and_outputs_have_the_agreed_names(exported, family, head):
    proto = onnx.load(exported(family, head).graph)
    segments = ["token_type_ids"] if family in SEGMENTED else []
    assert [value.name for value in proto.graph.input] == ["input_ids", "attention_mask", *segments]
    for value in proto.graph.input:
        assert [d.dim_param for d in value.type.tensor_type.shape.dim] == ["batch", "length"]
    expected = ["start_logits", "end_logits"] if head == "QuestionAnswering" else ["logits"]
    assert [value.name for value in proto.graph.output] == expected


@pytest.mark.parametrize(("family", "head"), CASES, ids=lambda value: value)
def test_every_weight_bears_its_parameters_name_and_is_there_once(exported, family, head):
    _, folder, graph = exported(family, head)
    parameters = {name: p.detach().numpy() for name, p in load_module(folder).named_parameters()}
    proto = onnx.load(graph)
    tensors = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    assert len(tensors) == len(proto.graph.initializer)
    multiplied = {
        name for node in proto.graph.node if node.op_type in {"MatMul", "Gemm"} for name in node.input[:2]
    } & set(tensors)
    assert multiplied <= set(parameters)
    # All that a linear layer multiplies with in torch is multiplied with here, under the same name.
    unused = {name for name in parameters if "pooler" in name}  # token classification and QA have no pooler
    linear = {name for name, p in parameters.items() if p.ndim == 2 and "embedding" not in name and "bias" not in name}
    assert linear - unused <= multiplied | {n for n in linear if "embeddings" in n}
    for name, tensor in tensors.items():
        if tensor.dtype == np.float32 and tensor.ndim == 2 and name in parameters:
            assert np.array_equal(tensor, parameters[name]) or np.array_equal(tensor, parameters[name].T), name
        elif tensor.dtype == np.float32:
            assert tensor.ndim < 2 or tensor.size <= 1, f"{name} {tensor.shape} is nobody's"


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_quantize_dynamic_takes_the_graph_as_it_is(exported, family, tmp_path):
    from onnxruntime.quantization import quantize_dynamic

    _, folder, graph = exported(family)
    quantize_dynamic(graph, tmp_path / "quantized.onnx")
    quantized = onnx.load(tmp_path / "quantized.onnx")
    assert any(node.op_type in {"MatMulInteger", "DynamicQuantizeMatMul"} for node in quantized.graph.node)
    module = load_module(folder)
    rows = batch([17, 5], module.config.pad_token_id)
    (logits,) = load("onnxruntime", tmp_path / "quantized.onnx", threads=1).run(rows)
    assert logits.shape == (2, 3)
    assert np.isfinite(logits).all()
