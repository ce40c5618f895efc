"""A shortened graph gives the full one's logits on both engines; one whose head reads more positions is left alone."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from models import MAX_LENGTH, build
from tersely.engines import load
from tersely.graphs.first_position import keep_first_position

SHAPES = ([1], [2], [9], [1, 1], [7, 3], [40, 1, 22], [MAX_LENGTH, 5])
WEIGHTED = dict.fromkeys(("bert", "roberta", "distilbert", "electra", "mpnet", "albert"), 4)
# ModernBERT has one matrix for query, key and value. DeBERTa's scores have both lengths in a Reshape, where a constant
# target cannot name the second.
WEIGHTED |= {"modernbert": 3, "deberta_v2": 3}

LAYER = """
    <ir_version: 10, opset_import: ["": 20]>
    layer (int64[batch, length] input_ids, int64[batch, length] attention_mask) => (OUTPUTS)
    <float[20, 8] table, float[8, 8] query, float[8, 8] key, float[8, 8] value, float[8, 8] merge, float[8, 12] up,
     float[12, 8] down, float[8] gain, float[8] shift, float[8, 8] dense, float large = {-1e4}, float one = {1.0},
     int64 zero = {0}, int64 step = {1}, int64[1] start = {0}, int64[1] end = {1}, int64[1] two = {2},
     int64[1] rest = {-1}, int64[2] middle = {1, 2}> {
        hidden = Gather(table, input_ids)
        batch_size = Shape<start = 0, end = 1>(input_ids)
        length_size = Shape<start = 1, end = 2>(input_ids)
        by_head = Concat<axis = 0>(batch_size, length_size, two, rest)
        by_token = Concat<axis = 0>(batch_size, length_size, rest)
        real = Cast<to = 1>(attention_mask)
        padding = Sub(one, real)
        high = Mul(padding, large)
        keys = Unsqueeze(high, middle)
        MASK
        q = MatMul(hidden, query)
        q_heads = Reshape<allowzero = 1>(q, by_head)
        q_rows = Transpose<perm = [0, 2, 1, 3]>(q_heads)
        k = MatMul(hidden, key)
        k_heads = Reshape<allowzero = 1>(k, by_head)
        k_rows = Transpose<perm = [0, 2, 3, 1]>(k_heads)
        v = MatMul(hidden, value)
        v_heads = Reshape<allowzero = 1>(v, by_head)
        v_rows = Transpose<perm = [0, 2, 1, 3]>(v_heads)
        scores = MatMul(q_rows, k_rows)
        masked = Add(scores, mask)
        attention = Softmax<axis = -1>(masked)
        mixed = MatMul(attention, v_rows)
        mixed_heads = Transpose<perm = [0, 2, 1, 3]>(mixed)
        context = Reshape<allowzero = 1>(mixed_heads, by_token)
        o = MatMul(context, merge)
        residual = Add(o, hidden)
        normed = LayerNormalization<axis = -1>(residual, gain, shift)
        wide = MatMul(normed, up)
        active = Gelu(wide)
        narrow = MatMul(active, down)
        both = Add(narrow, normed)
        last = LayerNormalization<axis = -1>(both, gain, shift)
        HEAD
    }"""
PER_KEY = "mask = Identity(keys)"
PER_QUERY = """
    size = Squeeze(length_size)
    numbers = Range(zero, size, step)
    down_numbers = Unsqueeze(numbers, end)
    distance = Sub(down_numbers, numbers)
    near = Cast<to = 1>(distance)
    mask = Add(keys, near)"""
CLS = "cls = Gather<axis = 1>(last, zero) logits = MatMul(cls, dense)"
HEADS = {
    "gather": CLS,
    "slice_and_squeeze": "row = Slice(last, start, end, end) cls = Squeeze(row, end) logits = MatMul(cls, dense)",
    "two_readers": "a = Gather<axis = 1>(last, zero) b = Gather<axis = -2>(last, zero) cls = Add(a, b) "
    "logits = MatMul(cls, dense)",
}
OTHER_HEADS = {
    "mean": "cls = ReduceMean<keepdims = 0>(last, end) logits = MatMul(cls, dense)",
    "second_position": "cls = Gather<axis = 1>(last, step) logits = MatMul(cls, dense)",
    "two_positions": "rows = Slice(last, start, two, end) cls = ReduceSum<keepdims = 0>(rows, end) "
    "logits = MatMul(cls, dense)",
    "every_position": "logits = MatMul(last, dense)",
    "first_feature": "logits = Gather<axis = 2>(last, zero)",
}


def parse(text):
    """A graph from text; what it declares without giving a value is a weight."""
    proto = onnx.parser.parse_model(text)
    random = np.random.default_rng(3)
    for value in proto.graph.value_info:
        sizes = [size.dim_value for size in value.type.tensor_type.shape.dim]
        weight = random.normal(size=sizes).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, value.name))
    del proto.graph.value_info[:]
    return proto


def layer(head=CLS, mask=PER_QUERY, outputs="float[batch, 8] logits"):
    return parse(LAYER.replace("OUTPUTS", outputs).replace("MASK", mask).replace("HEAD", head))


def batch(lengths, vocabulary=120, pad=0):
    random = np.random.default_rng(len(lengths))
    mask = (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.int64)
    ids = np.where(mask == 1, random.integers(5, vocabulary, mask.shape), pad)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": random.integers(0, 2, mask.shape) * mask}


def assert_same_logits(before, after, tmp_path, batches, engines=("onnxruntime", "openvino")):
    onnx.checker.check_model(after, full_check=True)
    onnx.save(before, tmp_path / "before.onnx")
    onnx.save(after, tmp_path / "after.onnx")
    for name in engines:
        full, short = (load(name, tmp_path / f"{which}.onnx", threads=1) for which in ("before", "after"))
        for rows in batches:
            for expected, got in zip(full.run(rows), short.run(rows), strict=True):
                assert got.shape == expected.shape
                np.testing.assert_allclose(got, expected, atol=1e-5, rtol=1e-5, err_msg=name)


def copy_of(proto):
    return onnx.ModelProto.FromString(proto.SerializeToString())


@pytest.mark.parametrize(("head", "mask"), [*((head, PER_QUERY) for head in HEADS), ("gather", PER_KEY)])
def test_layer_under_a_head_that_reads_the_first_position_gives_the_same_logits(head, mask, tmp_path):
    before = layer(HEADS[head], mask)
    after = copy_of(before)
    assert keep_first_position(after) == 4
    assert_same_logits(before, after, tmp_path, [batch(lengths, 20) for lengths in SHAPES])


def sizes_at_run_time(proto, names, rows):
    proto = copy_of(proto)
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    proto = onnx.shape_inference.infer_shapes(proto)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    feed = {value.name: rows[value.name] for value in session.get_inputs()}
    return {name: array.shape for name, array in zip(names, session.run(names, feed), strict=True)}


def test_only_keys_and_values_are_computed_for_every_position():
    proto = layer()
    keep_first_position(proto)
    names = ["q", "k", "v", "scores", "attention", "mixed", "o", "wide", "narrow", "last"]
    sizes = sizes_at_run_time(proto, names, batch([7, 5, 2], 20))
    assert sizes == {
        "q": (3, 1, 8), "k": (3, 7, 8), "v": (3, 7, 8), "scores": (3, 2, 1, 7), "attention": (3, 2, 1, 7),
        "mixed": (3, 2, 1, 4), "o": (3, 1, 8), "wide": (3, 1, 12), "narrow": (3, 1, 8), "last": (3, 1, 8),
    }  # fmt: skip


@pytest.mark.parametrize(("mask", "cut"), [(PER_KEY, {"hidden"}), (PER_QUERY, {"hidden", "down_numbers"})])
def test_each_long_value_is_cut_once_and_a_mask_without_rows_never(mask, cut):
    proto = layer(mask=mask)
    keep_first_position(proto)
    slices = [node.input[0] for node in proto.graph.node if node.op_type == "Slice"]
    assert sorted(slices) == sorted(cut)


def test_weights_and_values_keep_their_names_and_nothing_is_left_unread():
    proto = layer(HEADS["slice_and_squeeze"])
    weights = {tensor.name: tensor.SerializeToString() for tensor in proto.graph.initializer}
    values = {name for node in proto.graph.node for name in node.output}
    read = {name for node in proto.graph.node for name in node.input}
    keep_first_position(proto)
    after = {tensor.name: tensor.SerializeToString() for tensor in proto.graph.initializer}
    assert all(after[name] == weights[name] for name in weights.keys() & read)
    # by_token was the target of a Reshape
    assert values - {name for node in proto.graph.node for name in node.output} == {"by_token"}
    assert after.keys() - {name for node in proto.graph.node for name in node.input} == weights.keys() - read


def test_constants_that_lose_their_last_reader_go():
    proto = steps("t = Shape(h) z = Reshape(h, flat)")
    assert keep_first_position(proto) == 1
    assert "flat" not in {tensor.name for tensor in proto.graph.initializer}
    assert "Shape" not in {node.op_type for node in proto.graph.node}


def test_stale_shapes_of_shortened_values_are_dropped():
    proto = onnx.shape_inference.infer_shapes(layer(), data_prop=True)
    assert any(value.name == "wide" for value in proto.graph.value_info)
    assert keep_first_position(proto) == 4
    assert not {"wide", "q", "by_token"} & {value.name for value in proto.graph.value_info}
    onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True, data_prop=True)


def assert_untouched(proto):
    before = proto.SerializeToString(deterministic=True)
    assert keep_first_position(proto) == 0
    assert proto.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("head", OTHER_HEADS)
def test_layer_under_a_head_that_reads_more_is_untouched(head):
    assert_untouched(layer(OTHER_HEADS[head], outputs="logits"))


@pytest.mark.parametrize(("also_read", "shortened"), [("last", 0), ("both", 0), ("narrow", 0), ("normed", 2), ("q", 3)])
def test_value_with_a_second_reader_is_not_shortened(also_read, shortened, tmp_path):
    head = f"{CLS} mean = ReduceMean<keepdims = 0>({also_read}, end)"
    before = layer(head, outputs="float[batch, 8] logits, float[batch, 8] mean")
    after = copy_of(before)
    assert keep_first_position(after) == shortened
    assert_same_logits(before, after, tmp_path, [batch(lengths, 20) for lengths in SHAPES], ["onnxruntime"])


def test_value_that_is_an_output_itself_is_not_shortened():
    assert_untouched(layer(outputs="float[batch, 8] logits, float[batch, length, 8] last"))


def test_second_run_finds_nothing_to_do():
    proto = layer()
    assert keep_first_position(proto) == 4
    assert_untouched(proto)


def test_new_names_make_way_for_those_that_are_there(tmp_path):
    head = f"hidden_first = ReduceMean<keepdims = 0>(k, end) first_position_1 = Identity(hidden_first) {CLS}"
    before = layer(head, outputs="float[batch, 8] logits, float[batch, 8] first_position_1")
    after = copy_of(before)
    assert keep_first_position(after) == 4
    assert_same_logits(before, after, tmp_path, [batch([7, 3], 20)], ["onnxruntime"])


STEPS = """
    <ir_version: 10, opset_import: ["": 20, "somebody": 1]>
    steps (float[batch, length, 4] x) => (y)
    <float[4, 4] w, float[4] g, float[1, 1, 4] row, float low = {-0.5}, int64 zero = {0},
     int64 step = {1}, int64[1] start = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] last = {-1},
     bool yes = {1}, int64[3] longer = {0, -1, 2}, int64[4] heads = {0, 0, 2, 2}, int64[3] flat = {0, 0, 4},
     int64[2] tokens = {-1, 4}, int64[3] one_row = {1, -1, 4},
     int64[4] spread = {0, 1, -1, 4}, float[2, 4] half> {
        BODY
        y = Gather<axis = 1>(z, zero)
    }"""
EACH_POSITION = {
    "tanh": "z = Tanh(h)",
    "clip_without_a_top": "z = Clip(h, low)",
    "clip_without_a_bottom": 'z = Clip(h, "", low)',
    "vector": "z = Add(g, h)",
    "row": "z = Add(h, row)",
    "lower_rank": "t = ReduceMean<keepdims = 0>(x, start) z = Add(h, t)",
    "where": "t = Greater(h, x) z = Where(t, h, g)",
    "softmax": "z = Softmax<axis = -1>(h)",
    "layer_norm": "z = LayerNormalization<axis = 2>(h, g)",
    "variance": "t = ReduceMean<keepdims = 1>(h, last) u = Sub(h, t) v = Mul(u, u) z = ReduceSum<keepdims = 1>(v, two)",
    "transposes": "t = Transpose<perm = [1, 2, 0]>(h) u = Neg(t) z = Transpose<perm = [2, 0, 1]>(u)",
    "transposes_by_default": "t = Transpose(h) u = Neg(t) z = Transpose(u)",
    "heads": "t = Reshape(h, heads) u = Neg(t) z = Reshape(u, flat)",
    "split": "t, u = Split<axis = -1, num_outputs = 2>(h) z = Concat<axis = -1>(u, t)",
    "slice": "t = Slice(h, one, two, two) z = Mul(t, h)",
    "squeeze": "t = Reshape(h, heads) u, v = Split<axis = 2, num_outputs = 2>(t) s = Squeeze(v, two) "
    "z = Concat<axis = 2>(s, s)",
    "squeeze_before": "t = Reshape(h, spread) u = Neg(t) z = Squeeze(u, one)",
    "batch_and_length_swapped": "z = Transpose<perm = [1, 0, 2]>(h)",
}
ALL_POSITIONS = {
    "softmax_over_positions": "z = Softmax<axis = 1>(h)",
    "sum_over_positions": "t = ReduceSum<keepdims = 1>(h, one) z = Add(h, t)",
    "sum_over_everything": "t = ReduceSum<keepdims = 1>(h) z = Add(h, t)",
    "concat_of_positions": "z = Concat<axis = 1>(h, h)",
    "running_sum": "z = CumSum(h, step)",
    "positions_and_width_mixed": "z = Reshape(h, longer)",
    "positions_and_batch_mixed": "t = Transpose<perm = [1, 0, 2]>(h) u = Shape(x) z = Reshape(t, u)",
    "matmul_over_positions": "t = Transpose<perm = [0, 2, 1]>(h) u = MatMul(t, h) z = MatMul(h, u)",
    "positions_as_columns": "t = Transpose<perm = [0, 2, 1]>(h) u = MatMul(w, t) z = Transpose<perm = [0, 2, 1]>(u)",
    "shape_read_too": "t = Shape(h) u = Slice(t, one, two) v = Cast<to = 1>(u) z = Div(h, v)",
    "branch_reads_it": "t = If(yes) <then_branch = a () => (float[b, l, 4] i) { i = CumSum(h, step) }, "
    "else_branch = c () => (float[b, l, 4] j) { j = Neg(h) }> z = Add(h, t)",
    "operator_of_nobody": "z = somebody.Tanh(h)",
}


def steps(*bodies):
    """A matmul and, one after the other, what is done to its output, called h in each; names get numbers."""
    text = ["h0 = MatMul(x, w)"]
    for number, body in enumerate(bodies):
        names = {name: f"{name}{number}" for name in "htuvsaicj"} | {"z": f"h{number + 1}"}
        text.append(re.sub(r"\b[htuvsaicjz]\b", lambda found, names=names: names[found[0]], body))
    return parse(STEPS.replace("BODY", " ".join([*text, f"z = Identity(h{len(bodies)})"])))


def assert_same_in_reference(before, after):
    random = np.random.default_rng(5)
    full, short = ReferenceEvaluator(before), ReferenceEvaluator(after)
    for rows, length in ((1, 1), (2, 6), (3, 1), (1, 5)):
        feed = {"x": random.normal(size=(rows, length, 4)).astype(np.float32)}
        np.testing.assert_allclose(short.run(None, feed)[0], full.run(None, feed)[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", EACH_POSITION)
def test_operator_that_works_on_each_position_hands_the_wish_on(name):
    before = steps(EACH_POSITION[name])
    after = copy_of(before)
    assert keep_first_position(after) == 1
    assert not [node for node in after.graph.node if node.op_type == "MatMul" and "x" in node.input]
    assert_same_in_reference(before, after)


@pytest.mark.parametrize("name", ALL_POSITIONS)
def test_operator_that_mixes_positions_keeps_them_all(name):
    assert_untouched(steps(ALL_POSITIONS[name]))


@pytest.mark.parametrize("seed", range(30))
def test_any_chain_of_operators_gives_the_same(seed):
    random = np.random.default_rng(seed)
    usual = {**EACH_POSITION, **ALL_POSITIONS, "weight": "z = MatMul(h, w)", "again": "t = MatMul(h, w) z = Add(h, t)"}
    # Left out: what changes the width, swaps the batch, adds x (once the length has changed), or cannot be run.
    names = sorted(
        usual.keys() - {"variance", "positions_and_width_mixed", "batch_and_length_swapped", "operator_of_nobody"}
    )
    names = [
        name for name in names if name not in {"lower_rank", "where", "positions_and_batch_mixed", "branch_reads_it"}
    ]
    before = steps(*(usual[names[number]] for number in random.integers(len(names), size=6)), usual["again"])
    after = copy_of(before)
    assert keep_first_position(after) >= 1
    assert_same_in_reference(before, after)


def test_gemm_is_shortened_like_a_matmul():
    before = steps("t = Reshape(h, tokens) u = Gemm(t, w, g) z = Reshape(u, one_row)")
    after = copy_of(before)
    assert keep_first_position(after) == 1
    assert next(node for node in after.graph.node if node.op_type == "Gemm").input[0].startswith("t0_first")
    assert_same_in_reference(before, after)


def test_reshape_whose_target_no_constant_can_name_keeps_all_positions():
    before = steps(
        "t = Transpose<perm = [0, 2, 1]>(h) u = MatMul(h, t) v = Unsqueeze(u, start) s = Shape(u) "
        "a = Reshape(v, s) c = MatMul(a, h) z = MatMul(c, w)"
    )
    after = copy_of(before)
    assert keep_first_position(after) == 1
    assert_same_in_reference(before, after)


def test_second_run_finds_nothing_to_do_where_sizes_are_not_known():
    proto = steps("t = Shape<start = 2>(x) u = Div(t, two) v = Slice(h, start, u, two) z = MatMul(v, half)")
    assert keep_first_position(proto) == 2
    assert_untouched(proto)


def test_graphs_before_opset_13_are_untouched():
    proto = steps("z = Softmax(h)")  # over positions and width, at that time
    proto.opset_import[0].version = 12
    assert_untouched(proto)


@pytest.mark.slow
@pytest.mark.parametrize("family", WEIGHTED)
def test_every_family_gives_the_same_logits(exported, family, tmp_path):
    before = onnx.load(exported(family).graph)
    pad = 1 if family in {"roberta", "mpnet"} else 0
    after = copy_of(before)
    assert keep_first_position(after) == WEIGHTED[family]
    assert_same_logits(before, after, tmp_path, [batch(lengths, pad=pad) for lengths in SHAPES])


@pytest.mark.slow
@pytest.mark.parametrize("head", ["TokenClassification", "QuestionAnswering"])
def test_heads_that_read_every_position_are_untouched(exported, head):
    assert_untouched(onnx.load(exported("bert", head).graph))


@pytest.mark.slow
def test_mean_pooling_is_untouched(tmp_path):
    from tersely.graphs.export import export_onnx

    folder = build(tmp_path, "modernbert", layers=1, classifier_pooling="mean")
    export_onnx(folder, tmp_path / "model.onnx")
    assert_untouched(onnx.load(tmp_path / "model.onnx"))
