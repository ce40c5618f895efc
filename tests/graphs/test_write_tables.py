"""INT8 tables: the rows that come out are the dequantized ones, to the last bit, on both engines."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from int8 import COMPUTE, arrays, bert, count, graph, make_map

from tersely.errors import UserError
from tersely.graphs.layers import SMALLEST
from tersely.graphs.write_onnxruntime import write_onnxruntime
from tersely.graphs.write_qdq import write_qdq
from tersely.quant_map import QuantLayer, QuantMap, Range
from tersely.quantize.weights import quantize_table, quantize_tables, quantize_weight

RANDOM = np.random.default_rng(7)
WRITERS = {
    "fused": write_onnxruntime,
    "u8": lambda proto, quant_map: write_qdq(proto, quant_map, signed=False),
    "s8": lambda proto, quant_map: write_qdq(proto, quant_map, signed=True),
}
ENGINES = pytest.mark.parametrize("engine", COMPUTE)
EACH = pytest.mark.parametrize("writer", WRITERS)


def table(rows: int, width: int = 12) -> np.ndarray:
    return (RANDOM.normal(size=(rows, width)) * RANDOM.lognormal(0, 2, (rows, 1))).astype(np.float32)


@ENGINES
@EACH
def test_rows_are_the_dequantized_ones_exactly(writer, engine):
    words, ids = table(300), RANDOM.integers(0, 300, (3, 5))
    proto = graph(["y = Gather <axis = 0> (words, ids)"], {"words": words}, "int64[n, l] ids", "float[n, l, 12] y")
    quantized = quantize_table(words)
    written = WRITERS[writer](proto, QuantMap(tables={"words": quantized}))
    onnx.checker.check_model(written, full_check=True)
    assert [node.op_type for node in written.graph.node] == ["Gather", "Cast", "Gather", "Mul"]
    (found,) = COMPUTE[engine](written, {"ids": ids})
    np.testing.assert_array_equal(found, (quantized.integers.astype(np.float32) * quantized.scales[:, None])[ids])
    assert sorted(array.nbytes for array in arrays(written).values()) == [300 * 4, 300 * 12]


@ENGINES
def test_table_that_two_nodes_gather_lies_there_once(engine):
    lines = ["a = Gather (words, ids)", "b = Gather (words, more)", "y = Sub (a, b)"]
    proto = graph(lines, {"words": table(SMALLEST)}, "int64[n] ids, int64[n] more")
    tables, left = quantize_tables(proto)
    written = write_qdq(proto, QuantMap(tables=tables), signed=False)
    assert left == {}
    assert len(written.graph.initializer) == 2
    real = tables["words"].integers * tables["words"].scales[:, None]
    ids, more = np.array([0, 5, 63]), np.array([7, 5, 1])
    (found,) = COMPUTE[engine](written, {"ids": ids, "more": more})
    np.testing.assert_allclose(found, real[ids] - real[more], rtol=1e-6)


@EACH
def test_weight_that_is_table_and_layer_is_written_as_both(writer):
    """Rows and columns have scales of their own, so there are two sets of integers."""
    weight = RANDOM.normal(size=(SMALLEST, 16)).astype(np.float32)
    lines = ["a = Gather (w, ids)", "b = MatMul (x, w)", "y = Add (a, b)"]
    proto = graph(lines, {"w": weight}, f"int64[n] ids, float[n, {SMALLEST}] x")
    by_row, by_column = quantize_table(weight), quantize_weight(weight)
    layer = QuantLayer(Range(-1, 1), by_column.integers, by_column.scales)
    written = WRITERS[writer](proto, QuantMap({"w": layer}, {"w": by_row}))
    ids = np.array([3, 50])
    (found,) = COMPUTE["onnxruntime"](written, {"ids": ids, "x": np.zeros((2, SMALLEST), np.float32)})
    np.testing.assert_array_equal(found, (by_row.integers * by_row.scales[:, None])[ids])


def test_only_large_tables_of_an_encoder_are_written():
    proto, rows = bert()
    quant_map = make_map(proto, rows, tables=True)
    # Words and positions, not the two segments.
    assert {name.split(".")[-2] for name in quant_map.tables} == {"word_embeddings", "position_embeddings"}
    written = write_qdq(proto, QuantMap(tables=quant_map.tables), signed=False)
    assert count(written, "Gather") == count(proto, "Gather") + 2
    kept = arrays(written)
    for name, array in arrays(proto).items():
        if name in quant_map.tables:
            assert name not in kept
        else:
            np.testing.assert_array_equal(kept[name], array)


def test_table_that_the_graph_does_not_have_is_refused():
    proto = graph(["y = Gather (words, ids)"], {"words": table(SMALLEST - 1)}, "int64[n] ids")
    with pytest.raises(UserError, match="'words', which the graph does not have"):
        write_qdq(proto, QuantMap(tables={"words": quantize_table(table(SMALLEST - 1))}), signed=False)
