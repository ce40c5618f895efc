"""The two-term product: the graphs are what they say, and what they show holds for whole matrices."""

from __future__ import annotations

import io
import platform

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx.reference import ReferenceEvaluator

from tersely.engines.cpu import cpu
from tersely.engines.saturation import EXACT, MATMUL_INTEGER, PRODUCTS, QDQ_MATMUL, WIDTH, effective_class, saturates
from tersely.errors import UserError

WEIGHT = h.make_node("ConstantOfShape", ["shape"], ["w"], value=h.make_tensor("value", T.INT8, [1], [127]))
CONSTANTS = (
    h.make_tensor("one", T.FLOAT, [], [1.0]),
    h.make_tensor("u8", T.UINT8, [], [0]),
    h.make_tensor("s8", T.INT8, [], [0]),
)


def graph(nodes, kind, output, constants=()):
    shape = h.make_tensor("shape", T.INT64, [2], [WIDTH, WIDTH])
    made = h.make_graph(
        nodes, "two_terms", [h.make_tensor_value_info("x", kind, ["rows", WIDTH])],
        [h.make_tensor_value_info("y", output, ["rows", WIDTH])], [shape, *constants],
    )  # fmt: skip
    return h.make_model(made, opset_imports=[h.make_opsetid("", 13)], ir_version=8)


def test_integer_graph_is_a_product_with_127s():
    made = graph([WEIGHT, h.make_node("MatMulInteger", ["x", "w"], ["y"])], T.UINT8, T.INT32)
    assert onnx.load_from_string(MATMUL_INTEGER) == made


def test_quantized_graph_is_the_same_between_quantizers():
    nodes = [
        h.make_node("QuantizeLinear", ["x", "one", "u8"], ["q"]),
        h.make_node("DequantizeLinear", ["q", "one", "u8"], ["d"]),
        WEIGHT,
        h.make_node("DequantizeLinear", ["w", "one", "s8"], ["f"]),
        h.make_node("MatMul", ["d", "f"], ["y"]),
    ]
    assert onnx.load_from_string(QDQ_MATMUL) == graph(nodes, T.FLOAT, T.FLOAT, CONSTANTS)


@pytest.mark.parametrize(("content", "dtype"), [(MATMUL_INTEGER, np.uint8), (QDQ_MATMUL, np.float32)])
def test_exact_sum_is_what_the_standard_says(content, dtype):
    x = np.zeros((3, WIDTH), dtype)
    x[:, 4:6] = 255
    made = onnx.load_from_string(content)
    made.opset_import[0].version = 19  # ONNX's reference evaluator has no older quantizers; they mean the same
    (y,) = ReferenceEvaluator(made).run(None, {"x": x})
    assert (y == EXACT).all()


def full_range_product(engine, x, w):
    """x · w by an engine's integer kernels, with a weight that is anything."""
    if engine == "onnxruntime":
        import onnxruntime

        made = graph([h.make_node("MatMulInteger", ["x", "w"], ["y"])], T.UINT8, T.INT32)
        made.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
        return onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x": x})[0]
    import openvino

    made = onnx.load_from_string(QDQ_MATMUL)
    del made.graph.node[2]
    made.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    model = openvino.Core().read_model(io.BytesIO(made.SerializeToString()))
    return openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(x.astype(np.float32))[0]


@pytest.mark.parametrize("engine", PRODUCTS)
def test_products_of_all_integers_are_right_exactly_where_nothing_saturates(engine):
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (33, WIDTH)).astype(np.uint8)
    w = random.integers(-128, 128, (WIDTH, WIDTH)).astype(np.int8)
    right = np.array_equal(full_range_product(engine, x, w), x.astype(np.int64) @ w.astype(np.int64))
    assert right == (not saturates(engine))


@pytest.mark.parametrize("engine", PRODUCTS)
def test_products_of_seven_bit_weights_are_right_everywhere(engine):
    random = np.random.default_rng(1)
    x = random.integers(0, 256, (33, WIDTH)).astype(np.uint8)
    w = random.integers(-64, 65, (WIDTH, WIDTH)).astype(np.int8)
    assert np.array_equal(full_range_product(engine, x, w), x.astype(np.int64) @ w.astype(np.int64))


@pytest.mark.skipif(platform.system() != "Linux", reason="elsewhere the flags are not read")
@pytest.mark.parametrize("engine", PRODUCTS)
def test_machine_without_exact_sums_is_seen_to_saturate(engine):
    if cpu().cpu_class != "avx2":
        pytest.skip("a CPU with exact sums")
    assert saturates(engine)


@pytest.mark.parametrize("engine", PRODUCTS)
@pytest.mark.parametrize("says", ["amx", "vnni"])
def test_promise_of_exact_sums_is_kept_or_the_class_falls(engine, says):
    assert effective_class(engine, says) == ("avx2" if saturates(engine) else says)


@pytest.mark.parametrize("says", ["avx2", "other"])
def test_class_that_promises_nothing_stays(says):
    assert {effective_class(engine, says) for engine in (*PRODUCTS, "torch")} == {says}


def test_engine_without_int8_keeps_the_class_of_the_flags():
    assert effective_class("torch", "amx") == "amx"
    assert effective_class("torch") == cpu().cpu_class


def test_engine_without_int8_cannot_be_asked():
    with pytest.raises(UserError, match="The engine 'torch' runs no INT8 graphs"):
        saturates("torch")
