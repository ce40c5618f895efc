"""Each fused operator, taken apart, gives what ONNX Runtime's own kernel gives."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper, parser
from other_exporters import operators

from tersely.graphs.unfuse import unfuse

ROWS, LENGTH, WIDTH, HEADS = 3, 5, 8, 2
IDS = "int32[batch, length] ids"
SEGMENTS = "int32[batch, length] segments"
MASK = "int32[batch, length] mask"
Y = "float[batch, length, n] y"
X = "float[batch, length, 8] x"
RANDOM = np.random.default_rng(0)
CONSTANTS = {
    name: RANDOM.normal(size=shape).astype(np.float32)
    for name, shape in {
        "bias": (8,), "gain": (8,), "shift": (8,), "w": (8, 6), "wt": (6, 8), "c": (6,),
        "qkv": (8, 24), "qkv_bias": (24,), "narrow": (8, 20), "narrow_bias": (20,),
        "q": (8, 8), "k": (8, 8), "v": (8, 8), "words": (30, 8), "positions": (9, 8), "types": (2, 8),
    }.items()
}  # fmt: skip


def graph(*lines: str, inputs: str, gives: str = Y, opset: int = 17) -> onnx.ModelProto:
    head = f'<ir_version: 8, opset_import: ["": {opset}, "com.microsoft": 1]>'
    proto = parser.parse_model(f"{head} g ({inputs}) => ({gives}) {{ {' '.join(lines)} }}")
    used = {name for node in proto.graph.node for name in node.input}
    for name, array in CONSTANTS.items():
        if name in used:
            proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return proto


def run(proto: onnx.ModelProto) -> list[np.ndarray]:
    lengths = np.array([LENGTH, 3, 1])
    real = np.arange(LENGTH) < lengths[:, None]
    random = np.random.default_rng(1)
    feed = {
        "ids": random.integers(0, 30, real.shape), "segments": (np.arange(LENGTH) > 2) * real,
        "places": np.tile(np.arange(LENGTH)[::-1] + 2, (ROWS, 1)), "mask": real, "lengths": lengths,
        "pairs": real[:, None, :] & np.tri(LENGTH, dtype=bool), "x": random.normal(size=(ROWS, LENGTH, WIDTH)),
        "z": random.normal(size=(ROWS, WIDTH)),
        "skip": random.normal(size=(ROWS, LENGTH, WIDTH)), "added": random.normal(size=(ROWS, HEADS, LENGTH, LENGTH)),
    }  # fmt: skip
    types = {value.name: value.type.tensor_type.elem_type for value in proto.graph.input}
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {n: feed[n].astype(helper.tensor_dtype_to_np_dtype(t)) for n, t in types.items()})


M = "com.microsoft"
ATTENTION = f"y = {M}.Attention <num_heads = {HEADS}"
MULTI_HEAD = f"y = {M}.MultiHeadAttention <num_heads = {HEADS}"
PROJECTIONS = ("a = MatMul (x, q)", "b = MatMul (x, k)", "c1 = MatMul (x, v)")
EMBED = f"{M}.EmbedLayerNormalization <epsilon = 1e-5>"
CASES = {
    "bias_gelu": (X, [f"y = {M}.BiasGelu (x, bias)"]),
    "gelu": (X, [f"y = {M}.Gelu (x)"]),
    "fast_gelu": (X, [f"y = {M}.FastGelu (x)"]),
    "fast_gelu_bias": (X, [f"y = {M}.FastGelu (x, bias)"]),
    "skip": (f"{X}, float[batch, length, 8] skip", [f"y = {M}.SkipLayerNormalization (x, skip, gain, shift)"]),
    "skip_no_shift": (f"{X}, float[batch, length, 8] skip", [f"y = {M}.SkipLayerNormalization (x, skip, gain)"]),
    "skip_of_matmul": (X, ["m = MatMul (x, q)", f"y = {M}.SkipLayerNormalization (x, m, gain, shift, bias)"]),
    "fused_gemm": ("float[batch, 8] z", [f'y = {M}.FusedGemm <activation = "Tanh", transB = 1> (z, wt, c)']),
    "fused_matmul": (X, [f"y = {M}.FusedMatMul <alpha = 0.5, transB = 1> (x, wt)"]),
    "fused_product": (X, [f"y = {M}.FusedMatMul <transB = 1> (x, x)"]),
    "fused_after_transpose": (X, [
        "t = Transpose <perm = [0, 2, 1]> (x)", f"y = {M}.FusedMatMul <alpha = 0.5, transB = 1> (t, t)",
    ]),
    "skip_sum": (f"{X}, float[batch, length, 8] skip", [
        f"y, mean, deviation, sum = {M}.SkipLayerNormalization (x, skip, gain, shift, bias)",
    ]),
    "embed": (f"{IDS}, {SEGMENTS}", [f"y, m = {EMBED} (ids, segments, words, positions, types, gain, shift)"]),
    "embed_one_segment": (IDS, [f'y, m = {EMBED} (ids, "", words, positions, "", gain, shift)']),
    "embed_places": (f"{IDS}, int32[batch, length] places", [
        f'y, m = {EMBED} (ids, "", words, positions, "", gain, shift, "", places)',
    ]),
    "embed_lengths": (f"{IDS}, {MASK}", [f'y, m = {EMBED} (ids, "", words, positions, "", gain, shift, mask)']),
    "embed_sum": (IDS, [f'y, m, sum = {EMBED} (ids, "", words, positions, "", gain, shift)']),
    "attention": (X, [f"{ATTENTION}> (x, qkv, qkv_bias)"]),
    "attention_scale": (X, [f"{ATTENTION}, scale = 0.3> (x, qkv, qkv_bias)"]),
    "attention_narrow_values": (X, [f"{ATTENTION}, qkv_hidden_sizes = [8, 8, 4]> (x, narrow, narrow_bias)"]),
    "attention_lengths": (f"{IDS}, {X}, int32[batch] lengths", [f"{ATTENTION}> (x, qkv, qkv_bias, lengths)"]),
    "attention_mask": (f"{X}, {MASK}", [f"{ATTENTION}> (x, qkv, qkv_bias, mask)"]),
    "attention_low": (
        f"{X}, {MASK}", [f"{ATTENTION}, mask_filter_value = -3.0> (x, qkv, qkv_bias, mask)"],
    ),
    "attention_pairs": (f"{X}, int32[batch, length, length] pairs", [f"{ATTENTION}> (x, qkv, qkv_bias, pairs)"]),
    "attention_added": (
        f"{X}, {MASK}, float[batch, 2, length, length] added",
        [f'{ATTENTION}> (x, qkv, qkv_bias, mask, "", added)'],
    ),
    "multi_head": (X, [*PROJECTIONS, f"{MULTI_HEAD}> (a, b, c1)"]),
    "multi_head_bias": (
        f"{X}, {MASK}", [*PROJECTIONS, f"{MULTI_HEAD}> (a, b, c1, qkv_bias, mask)"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("case", CASES)
def test_plain_nodes_give_the_fused_ones_numbers(case, opset):
    inputs, lines = CASES[case]
    gives = {"skip_sum": f"{Y}, float[batch, length, 8] sum", "embed_sum": f"{Y}, float[batch, length, 8] sum"}
    gives |= {"embed_lengths": f"{Y}, int32[batch] m", "fused_gemm": "float[batch, 6] y"}
    fused, plain = (graph(*lines, inputs=inputs, gives=gives.get(case, Y), opset=opset) for _ in range(2))
    unfuse(plain)
    assert not any("." in name for name in operators(plain)), operators(plain)
    onnx.checker.check_model(plain, full_check=True)
    for before, after in zip(run(fused), run(plain), strict=True):
        assert np.abs(before - after).max() < 1e-5


def test_attention_without_bias_is_that_with_a_zero_bias():
    fused = graph(f"{ATTENTION}> (x, qkv, qkv_bias)", inputs=X)
    bias = next(tensor for tensor in fused.graph.initializer if tensor.name == "qkv_bias")
    bias.CopyFrom(numpy_helper.from_array(np.zeros(24, np.float32), "qkv_bias"))
    plain = graph(f"{ATTENTION}> (x, qkv)", inputs=X)  # ONNX Runtime 1.31 itself ends with a segmentation fault here
    unfuse(plain)
    assert np.abs(run(fused)[0] - run(plain)[0]).max() < 1e-5


@pytest.mark.parametrize(
    ("inputs", "line"),
    [
        (X, f"{ATTENTION}, unidirectional = 1> (x, qkv, qkv_bias)"),
        (f"{X}, int32[both] lengths", f"{ATTENTION}> (x, qkv, qkv_bias, lengths)"),
        (f"{X}, float[8, 24] given", f"{ATTENTION}> (x, given, qkv_bias)"),
        (f"{X}, float[batch, length, 8] skip", f"{MULTI_HEAD}> (x, skip, skip)"),
        (f"{X}, float[batch, length, 2, 3, 4] packed", f"{MULTI_HEAD}> (packed)"),
        (X, f"y = {M}.FusedMatMul <transA = 1> (x, x)"),
        (f"{X}, float z", f"y = {M}.FusedMatMul <transB = 1> (x, z)"),
        (X, f'y = {M}.FusedGemm <activation = "LeakyRelu"> (x, w, c)'),
        (X, f"sum, y = {M}.SkipLayerNormalization (x, x, gain)"),
        (X, f"sum, y = {M}.Attention <num_heads = 2> (x, qkv, qkv_bias)"),
        (IDS, f'sum, y = {EMBED} (ids, "", words, positions, "", gain, shift)'),
        (X, f"y = {M}.QuickGelu (x)"),
    ],
)
def test_form_that_encoders_do_not_have_stays(inputs, line):
    proto = graph(line, inputs=inputs)
    before = proto.graph.node[0].SerializeToString()
    unfuse(proto)
    assert [node.SerializeToString() for node in proto.graph.node] == [before]


def test_layers_share_the_nodes_of_their_mask():
    line = f"{ATTENTION}> (x, qkv, qkv_bias, mask)"
    proto = graph(line.replace("y =", "h ="), line.replace("(x,", "(h,"), inputs=f"{X}, {MASK}")
    unfuse(proto)
    assert sum(node.op_type == "Where" for node in proto.graph.node) == 1
    assert sum(node.op_type == "Softmax" for node in proto.graph.node) == 2
