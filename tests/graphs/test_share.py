"""Graphs over one file of weights: the bytes are where they are said to be, engines find them, damage is seen."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from int8 import bert, graph, make_map, run
from onnx import numpy_helper

from tersely import engines
from tersely.errors import UserError
from tersely.graphs.rewrite import LEAST_SHARED, save_sharing
from tersely.graphs.write_onnxruntime import write_onnxruntime
from tersely.graphs.write_qdq import write_qdq

STANDARD, FUSED, SIGNED = "model.onnx", "fused.onnx", "signed.onnx"


@functools.cache
def graphs():
    proto, rows = bert()
    quant_map = make_map(proto, rows, tables=True, smooth=True)
    others = {FUSED: write_onnxruntime(proto, quant_map), SIGNED: write_qdq(proto, quant_map, signed=True)}
    return write_qdq(proto, quant_map, signed=False), others


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("shared") / "onnx"
    save_sharing(*graphs(), made, STANDARD)
    return made


def places(path: Path) -> dict[str, tuple[str, int, int]]:
    """Location, offset and length of each tensor that lies elsewhere."""
    found = {}
    for tensor in onnx.load(path, load_external_data=False).graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            found[tensor.name] = (entries["location"], int(entries["offset"]), int(entries["length"]))
    return found


def test_first_file_stands_alone(folder):
    assert places(folder / STANDARD) == {}
    assert (folder / STANDARD).read_bytes() == graphs()[0].SerializeToString(deterministic=True)


@pytest.mark.parametrize("name", [FUSED, SIGNED])
def test_other_graphs_refer_to_bytes_of_the_first(folder, name):
    content = (folder / STANDARD).read_bytes()
    tensors = {tensor.name: tensor for tensor in graphs()[1][name].graph.initializer}
    found = places(folder / name)
    # Every large tensor: both graphs have the same integers, and neither has a float weight of its own.
    assert found.keys() == {key for key, tensor in tensors.items() if len(tensor.raw_data) >= LEAST_SHARED}
    for key, (location, offset, length) in found.items():
        assert location == STANDARD
        assert content[offset : offset + length] == tensors[key].raw_data
    shared = sum(length for _, _, length in found.values())
    alone = len(graphs()[1][name].SerializeToString())
    assert (folder / name).stat().st_size < alone - 0.9 * shared


@pytest.mark.parametrize("name", [FUSED, SIGNED])
def test_what_is_read_back_is_what_was_written(folder, name):
    written = {tensor.name: numpy_helper.to_array(tensor) for tensor in graphs()[1][name].graph.initializer}
    loaded = onnx.load(folder / name)
    onnx.checker.check_model(str(folder / name))
    assert [tensor.name for tensor in loaded.graph.initializer] == list(written)
    for tensor in loaded.graph.initializer:
        array = numpy_helper.to_array(tensor)
        assert array.dtype == written[tensor.name].dtype
        np.testing.assert_array_equal(array, written[tensor.name])


@pytest.mark.parametrize(("name", "engine"), [(FUSED, "onnxruntime"), (SIGNED, "onnxruntime"), (SIGNED, "openvino")])
def test_engines_give_the_same_logits_from_shared_bytes(folder, name, engine, tmp_path):
    _, rows = bert()
    alone = run(graphs()[1][name], rows, tmp_path, engine)
    shared = engines.load(engine, folder / name, threads=1, precision="int8").run(rows)[0]
    np.testing.assert_array_equal(shared, alone)


def test_same_graphs_give_the_same_bytes(folder, tmp_path):
    save_sharing(*graphs(), tmp_path, STANDARD)
    first, second = ({path.name: path.read_bytes() for path in place.iterdir()} for place in (folder, tmp_path))
    assert first == second
    assert set(first) == {STANDARD, FUSED, SIGNED}


@pytest.mark.parametrize("damage", ["gone", "cut", "empty"])
@pytest.mark.parametrize(("name", "engine"), [(FUSED, "onnxruntime"), (SIGNED, "onnxruntime"), (SIGNED, "openvino")])
def test_missing_or_cut_weights_are_a_clean_error(folder, tmp_path, name, engine, damage):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    file = tmp_path / STANDARD
    if damage == "gone":
        file.rename(tmp_path / "elsewhere.onnx")
    else:
        end = max(offset + length for _, offset, length in places(tmp_path / name).values())
        file.write_bytes(file.read_bytes()[: end - 1 if damage == "cut" else 0])
    with pytest.raises(UserError, match="cannot load this graph"):
        engines.load(engine, tmp_path / name, threads=1, precision="int8")


def test_equal_tensors_share_one_place_and_small_ones_stay_inside(tmp_path):
    """Zeros lie inside of other zeros: any place that holds the bytes is right."""
    weights = {
        "zeros": np.zeros((16, 32), np.float32),
        "more": np.zeros((32, 32), np.float32),
        "same": np.zeros((32, 32), np.float32),
        "own": np.eye(32, dtype=np.float32),
        "small": np.ones((32, 4), np.float32),
    }
    lines = ["a = MatMul (x, zeros)", "b = MatMul (a, more)", "c = MatMul (b, same)", "d = MatMul (c, own)"]
    first = graph([*lines, "y = MatMul (d, small)"], weights, "float[n, 16] x")
    other = graph(["c = MatMul (x, same)", "d = MatMul (c, own)", "y = MatMul (d, small)"], weights, "float[n, 32] x")
    save_sharing(first, {"other.onnx": other, "first.onnx": first}, tmp_path, "weights.onnx")
    assert places(tmp_path / "other.onnx").keys() == {"same", "own"}
    for name, proto in (("other.onnx", other), ("first.onnx", first)):
        loaded = onnx.load(tmp_path / name).graph.initializer
        assert [tensor.raw_data for tensor in loaded] == [tensor.raw_data for tensor in proto.graph.initializer]
