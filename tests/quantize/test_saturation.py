"""The emulated instruction against Python's own integers and against the engine, where this CPU has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from saturating import emulate, exact
from tersely.engines.cpu import cpu
from tersely.quantize.weights import pairs, quantize_weight, unsafe_pairs

RANDOM = np.random.default_rng(3)
only_avx2 = pytest.mark.skipif(cpu().cpu_class != "avx2", reason="only CPUs without VNNI saturate")


def by_hand(codes: Any, integers: Any) -> tuple[list[list[int]], list[list[int]]]:
    """Saturating and plain sums with Python's integers."""
    saturating, plain = [], []
    for token in codes.tolist():
        rows: tuple[list[int], list[int]] = ([], [])
        for column in integers.T.tolist():
            products = [code * weight for code, weight in zip(token, column, strict=True)]
            sums = [sum(products[at : at + 2]) for at in range(0, len(products), 2)]
            rows[0].append(sum(max(-32768, min(32767, pair)) for pair in sums))
            rows[1].append(sum(products))
        saturating.append(rows[0])
        plain.append(rows[1])
    return saturating, plain


def codes_that_overflow(tokens: int, inputs: int) -> Any:
    codes = RANDOM.integers(0, 256, (tokens, inputs), dtype=np.uint8)
    codes[RANDOM.random(codes.shape) < 0.5] = 255
    return codes


def risky_weight(inputs: int, outputs: int) -> Any:
    """Neighbours of one sign and nearly the largest magnitude: plain 8-bit rounding overflows everywhere."""
    signs = np.repeat(RANDOM.choice([-1, 1], (-(-inputs // 2), outputs)), 2, axis=0)[:inputs]
    return (signs * RANDOM.uniform(0.7, 1.0, (inputs, outputs))).astype(np.float32)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 2, 4), (4, 7, 3), (2, 16, 5), (5, 33, 2)])
def test_emulate_and_exact_equal_python_integers(shape: tuple[int, int, int]) -> None:
    tokens, inputs, outputs = shape
    for _ in range(20):
        codes = codes_that_overflow(tokens, inputs)
        integers = RANDOM.integers(-128, 128, (inputs, outputs)).astype(np.int8)
        saturating, plain = by_hand(codes, integers)
        assert emulate(codes, integers).tolist() == saturating
        assert exact(codes, integers).tolist() == plain


def test_a_pair_is_unsafe_iff_some_codes_overflow() -> None:
    values = np.arange(-128, 128, dtype=np.int8)
    both = np.stack([np.repeat(values, 256), np.tile(values, 256)])
    # Sums grow with the codes, so that overflow shows at the corners or nowhere.
    corners = np.array([[255, 0], [0, 255], [255, 255]], np.uint8)
    overflows = (emulate(corners, both) != exact(corners, both)).any(axis=0)
    assert 0 < overflows.sum() < len(overflows)
    assert unsafe_pairs(both[:, overflows]) == overflows.sum()
    assert unsafe_pairs(both[:, ~overflows]) == 0


def test_unsafe_pairs_are_counted_and_an_odd_last_row_is_alone() -> None:
    integers = np.array([[127, -70], [2, -70], [127, 1], [1, 1], [127, -127]], np.int8)
    assert unsafe_pairs(integers) == 2
    assert unsafe_pairs(np.full((1, 4), -127, np.int8)) == 0
    assert [rows.shape for rows in pairs(integers)] == [(2, 2), (2, 2)]


def test_naive_weights_overflow_where_ours_do_not() -> None:
    weight, codes = risky_weight(63, 9), codes_that_overflow(8, 63)
    naive = quantize_weight(weight, cpu_classes="vnni").integers
    ours = quantize_weight(weight).integers
    assert unsafe_pairs(naive) > 0
    assert (emulate(codes, naive) != exact(codes, naive)).any()
    assert unsafe_pairs(ours) == 0
    np.testing.assert_array_equal(emulate(codes, ours), exact(codes, ours))


def in_engine(codes: Any, integers: Any, *, precise: bool = False) -> Any:
    node = helper.make_node("MatMulInteger", ["codes", "weight"], ["sums"])
    graph = helper.make_graph(
        [node],
        "product",
        [helper.make_tensor_value_info("codes", TensorProto.UINT8, ["tokens", len(integers)])],
        [helper.make_tensor_value_info("sums", TensorProto.INT32, ["tokens", integers.shape[1]])],
        initializer=[numpy_helper.from_array(integers, "weight")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    if precise:
        options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"codes": codes})[0]


@only_avx2
@pytest.mark.parametrize("shape", [(1, 384, 64), (3, 383, 33), (16, 64, 48), (64, 7, 5)])
def test_engine_saturates_as_emulated_and_is_exact_with_our_weights(shape: tuple[int, int, int]) -> None:
    tokens, inputs, outputs = shape
    weight, codes = risky_weight(inputs, outputs), codes_that_overflow(tokens, inputs)
    naive = quantize_weight(weight, cpu_classes="vnni").integers
    ours = quantize_weight(weight).integers
    saturated = in_engine(codes, naive)
    assert (saturated != exact(codes, naive)).any()
    np.testing.assert_array_equal(saturated, emulate(codes, naive))
    np.testing.assert_array_equal(in_engine(codes, ours), exact(codes, ours))


@only_avx2
def test_precise_mode_of_the_engine_does_not_saturate() -> None:
    weight, codes = risky_weight(384, 64), codes_that_overflow(16, 384)
    naive = quantize_weight(weight, cpu_classes="vnni").integers
    np.testing.assert_array_equal(in_engine(codes, naive, precise=True), exact(codes, naive))


@pytest.mark.skipif(cpu().cpu_class not in {"amx", "vnni"}, reason="only CPUs with VNNI sum in 32 bits")
def test_engine_on_vnni_is_exact_with_any_weights() -> None:
    weight, codes = risky_weight(384, 64), codes_that_overflow(16, 384)
    naive = quantize_weight(weight, cpu_classes="vnni").integers
    np.testing.assert_array_equal(in_engine(codes, naive), exact(codes, naive))
