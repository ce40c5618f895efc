"""The probe replayed: engines say what NumPy says, changed weights are noticed, rounding is not taken for change."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tersely import engines
from tersely.artifact import read
from tersely.deploy import probe
from tersely.engines.saturation import saturates
from tersely.errors import Failure, UserError
from tersely.measure import check as checking
from tersely.measure.check import check, chooser, compare, read_probe, runnable
from tiny_artifacts import (
    OWN,
    PLAIN,
    SHARED,
    TASKS,
    Numpy,
    change_weight,
    copy,
    make,
    make_int8,
    reseal,
    rewrite_probe,
)

KINDS = list(TASKS)
ENGINES = ("onnxruntime", "openvino")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Artifacts by kind and precision, made once. Not to be written to."""
    folder, found = tmp_path_factory.mktemp("artifacts"), {}

    def get(kind="text", precision="fp32", bits=7):
        name = f"{kind}-{precision}-{bits}"
        if name not in found:
            found[name] = (
                make(folder / name, kind) if precision == "fp32" else make_int8(folder / name, kind, bits=bits)
            )
        return found[name]

    return get


def verdicts(done):
    return {(checked.graph, checked.engine): checked.verdict for checked in done}


@pytest.mark.parametrize("kind", KINDS)
def test_engines_say_what_numpy_said(kind, made):
    done = check(made(kind), threads=1)
    assert verdicts(done) == {(PLAIN, engine): "ok" for engine in ENGINES}
    for checked in done:
        assert checked.change.max_change < 1e-5
        assert checked.change.moved == 0


@pytest.mark.parametrize("kind", KINDS)
def test_int8_graphs_say_what_they_said(kind, made):
    done = check(made(kind, "int8"), threads=1)
    assert verdicts(done) == {(OWN, "onnxruntime"): "ok", (SHARED, "onnxruntime"): "ok", (SHARED, "openvino"): "ok"}
    arrays = dict(np.load(made(kind, "int8") / "probe.npz"))
    for checked in done:
        if (checked.graph, checked.engine) == (SHARED, "openvino"):
            assert checked.change.max_change == 0  # the same engine, the same machine
        assert (checked.same_answer_as_fp32 is None) == (kind == "number")
    if kind == "text":
        same = arrays["logits_fp32"].argmax(1) == arrays["logits_int8_onnxruntime"].argmax(1)
        assert done[[checked.graph for checked in done].index(OWN)].same_answer_as_fp32 == same.mean()


def test_threads_change_nothing(made):
    assert [checked.change for checked in check(made("tags", "int8"), threads=1)] == [
        checked.change for checked in check(made("tags", "int8"), threads=2)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_flipped_weight_is_noticed(kind, made, tmp_path):
    folder = copy(made(kind), tmp_path / "flipped")

    def flip(weight):
        weight[3, 0] *= -1
        return weight

    change_weight(folder, PLAIN, "second", flip)
    assert set(verdicts(check(folder, threads=1)).values()) == {"moved"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", [OWN, SHARED])
def test_flipped_int8_weights_are_noticed(kind, path, made, tmp_path):
    folder = copy(made(kind, "int8"), tmp_path / "flipped")

    def flip(weight):
        weight[:, 0] = -weight[:, 0]
        return weight

    change_weight(folder, path, "second_quantized", flip)
    found = verdicts(check(folder, threads=1))
    assert {verdict for (graph, _), verdict in found.items() if graph == path} == {"moved"}
    assert {verdict for (graph, _), verdict in found.items() if graph != path} == {"ok"}


def test_weight_that_is_no_number_is_noticed(made, tmp_path):
    folder = copy(made("tags"), tmp_path / "nan")
    change_weight(folder, PLAIN, "second", lambda weight: weight * np.nan)
    done = check(folder, threads=1)
    assert {checked.reason for checked in done} == {"The logits are not numbers (NaN)."}
    assert set(verdicts(done).values()) == {"moved"}


@pytest.mark.parametrize("kind", ["text", "tags", "question"])
def test_sums_that_saturate_are_noticed_on_machines_where_they_do(kind, made, tmp_path):
    folder = copy(made(kind, "int8", bits=8), tmp_path / "made-elsewhere")
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")  # slower kernels that do not saturate
    arrays = dict(np.load(folder / "probe.npz"))
    session = onnxruntime.InferenceSession(str(folder / OWN), options)
    outputs = session.run(None, {name: arrays[name] for name in Numpy.inputs})
    exact = outputs[0] if len(outputs) == 1 else np.stack(outputs, axis=-1)
    rewrite_probe(folder, {**arrays, "logits_int8_onnxruntime": exact})
    found = verdicts(check(folder, "onnxruntime", threads=1))
    assert found[OWN, "onnxruntime"] == ("moved" if saturates("onnxruntime") else "ok")


def test_graph_for_another_class_is_replayed_only_where_there_is_no_other(made, tmp_path):
    from dataclasses import replace

    folder = copy(made("text", "int8"), tmp_path / "other")
    own, shared = read(folder).manifest.graphs
    reseal(folder, graphs=(replace(own, cpu_classes=("none such",)), shared))
    assert {graph for graph, _ in verdicts(check(folder, threads=1))} == {SHARED}
    reseal(folder, graphs=(replace(own, cpu_classes=("none such",)),))
    assert verdicts(check(folder, threads=1)) == {(OWN, "onnxruntime"): "ok"}


def test_one_engine_can_be_named(made):
    assert list(verdicts(check(made("text", "int8"), "openvino", 1))) == [(SHARED, "openvino")]
    with pytest.raises(UserError, match=r"has no graph for engine 'torch'. It has: onnxruntime, openvino."):
        check(made(), "torch")


def test_artifact_without_an_engine_here_is_refused(made, tmp_path):
    from dataclasses import replace

    folder = copy(made(), tmp_path / "other")
    reseal(folder, graphs=tuple(replace(graph, engines=("tensorrt",)) for graph in read(folder).manifest.graphs))
    with pytest.raises(UserError, match=r"no graph for an engine that is installed here. It has: tensorrt."):
        runnable(read(folder))


def test_graph_that_was_not_recorded_is_said(made, tmp_path):
    folder = copy(made("text", "int8"), tmp_path / "part")
    arrays = dict(np.load(folder / "probe.npz"))
    rewrite_probe(folder, {name: array for name, array in arrays.items() if name != "logits_int8_quantized"})
    found = {(checked.graph, checked.engine): checked for checked in check(folder, threads=1)}
    assert found[OWN, "onnxruntime"].verdict == "ok"
    assert found[SHARED, "openvino"].verdict == found[SHARED, "onnxruntime"].verdict == "not recorded"
    assert "('logits_int8_quantized')" in found[SHARED, "openvino"].reason
    with pytest.raises(Failure, match=r"There is nothing to compare with: probe.npz holds no logits of"):
        check(folder, "openvino", 1)


def test_graph_that_does_not_load_is_said(made, tmp_path):
    folder = copy(made(), tmp_path / "broken")
    (folder / PLAIN).write_bytes(b"no graph")
    reseal(folder)
    done = check(folder, threads=1)
    assert {checked.verdict for checked in done} == {"failed"}
    assert all("cannot load this graph" in checked.reason for checked in done)


def test_logits_of_another_shape_are_said(made, tmp_path):
    folder = copy(made("tags"), tmp_path / "cut")
    change_weight(folder, PLAIN, "second", lambda weight: weight[:, :2])
    assert {checked.reason for checked in check(folder, threads=1)} == {
        "The logits have another shape than those recorded."
    }


@pytest.mark.parametrize(
    "damage",
    [
        lambda arrays: {},
        lambda arrays: {name: arrays[name] for name in arrays if name != "attention_mask"},
        lambda arrays: {**arrays, "logits_fp32": arrays["logits_fp32"][:-1]},
        lambda arrays: {**arrays, "logits_int8_quantized": arrays["logits_fp32"][:, :1]},
        lambda arrays: {name: array[:0] for name, array in arrays.items()},
        lambda arrays: {**arrays, "logits_fp32": np.array([{}] * 32, object)},
        lambda arrays: {**arrays, "attention_mask": np.ones(32)},
    ],
)
def test_damaged_probe_is_refused(damage, made, tmp_path):
    folder = copy(made(), tmp_path / "damaged")
    rewrite_probe(folder, damage(dict(np.load(folder / "probe.npz"))))
    with pytest.raises(UserError, match="The probe"):
        check(folder, threads=1)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"no archive"])
def test_probe_that_is_no_archive_is_refused(content, made, tmp_path):
    folder = copy(made(), tmp_path / "damaged")
    (folder / "probe.npz").write_bytes(content)
    reseal(folder)
    with pytest.raises(UserError, match="The probe is damaged"):
        check(folder, threads=1)


def test_artifact_without_a_probe_is_refused(made, tmp_path):
    folder = copy(made(), tmp_path / "without")
    (folder / "probe.npz").unlink()
    reseal(folder)
    with pytest.raises(UserError, match=r"does not list the file 'probe.npz'"):
        check(folder, threads=1)


def test_probe_is_replayed_as_it_was_recorded(made):
    assert checking.BATCH == probe.BATCH
    opened = read(made("tags"))
    found = read_probe(opened)
    arrays = dict(np.load(opened.path("probe.npz")))
    assert found.pad_id == 0
    assert [len(feature) for feature in found.features] == arrays["attention_mask"].sum(1).tolist()
    for row, feature in enumerate(found.features):
        assert np.array_equal(feature.input_ids, arrays["input_ids"][row, : len(feature)])
        assert np.array_equal(found.logits["fp32"][row], arrays["logits_fp32"][row, : len(feature)])


LABELS = chooser(TASKS["text"])


def rows(*values):
    return [np.array(row, np.float32) for row in values]


def test_answer_that_was_clear_may_not_move():
    change = compare(rows([1, 0], [4, 0]), rows([0, 1], [4, 0]), rows([1, 0], [4, 0]), "fp32", LABELS)
    assert (change.answers, change.moved, change.ties, change.within) == (2, 1, 0, False)


def test_tie_may_go_either_way():
    change = compare(rows([1, 1.0005]), rows([1.0005, 1]), rows([1, 1.0005]), "fp32", LABELS)
    assert (change.moved, change.ties, change.within) == (0, 1, True)


@given(st.floats(1e-6, 0.2), st.sampled_from(["fp32", "bf16"]), st.integers(0, 2**31))
@settings(max_examples=50, deadline=None)
def test_float_logits_may_move_by_their_limit(size, precision, seed):
    random = np.random.default_rng(seed)
    recorded = list(random.normal(0, 1, (8, 3)))
    largest = max(np.abs(row).max() for row in recorded)
    here = [row + size * largest for row in recorded]  # a shift of all moves no answer
    change = compare(recorded, here, recorded, precision, LABELS)
    assert change.max_change == pytest.approx(size, rel=1e-3)
    limit = {"fp32": 1e-3, "bf16": 0.1}[precision]
    if abs(size - limit) > 1e-3 * limit:
        assert change.within == (size < limit)


@pytest.mark.parametrize(("factor", "fine"), [(0.0, True), (0.6, True), (0.95, True), (1.1, False), (5.0, False)])
def test_int8_logits_may_move_as_far_as_quantization_moved_them(factor, fine):
    random = np.random.default_rng(0)
    fp32 = random.normal(0, 1, (64, 3)) + np.eye(3)[np.arange(64) % 3] * 20
    noise = random.uniform(-0.1, 0.1, fp32.shape)
    recorded = list(fp32 + noise)
    here = list(fp32 + noise + factor * random.permutation(noise))
    assert compare(recorded, here, list(fp32), "int8", LABELS).within == fine


def test_more_answers_than_quantization_moved_may_not_move():
    fp32 = [np.array([1.0, 0.0])] * 10
    recorded = [np.array([1.0, 0.0])] * 8 + [np.array([0.0, 1.0])] * 2
    assert compare(recorded, recorded[::-1], fp32, "int8", LABELS).moved == 4
    here = [np.array([0.0, 1.0]), *recorded[1:]]
    change = compare(recorded, here, fp32, "int8", LABELS)
    assert (change.moved, change.moved_limit, change.within) == (1, 2, True)
    assert not compare(recorded, recorded[::-1], fp32, "int8", LABELS).within


def test_graph_that_quantization_left_alone_still_has_room_for_rounding():
    fp32 = [np.array([1.0, 0.0])]
    assert compare(fp32, [np.array([1.0005, 0.0])], fp32, "int8", LABELS).within
    assert not compare(fp32, [np.array([1.01, 0.0])], fp32, "int8", LABELS).within


def test_logits_of_nothing_but_zeros_are_compared():
    zeros = [np.zeros(3)]
    assert compare(zeros, zeros, zeros, "fp32", LABELS).within
    assert not compare(zeros, [np.ones(3)], zeros, "fp32", LABELS).within


@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 2**31))
@settings(max_examples=40, deadline=None)
def test_answers_are_those_of_the_task(length, labels, seed):
    logits = np.random.default_rng(seed).normal(size=(length, labels))
    tags, margins = chooser(TASKS["tags"])(logits)
    spans, _ = chooser(TASKS["question"])(logits)
    chosen, distances = chooser(TASKS["labels"])(logits[0])
    assert tags.tolist() == [max(range(labels), key=lambda j: logits[i, j]) for i in range(length)]
    assert spans.tolist() == [max(range(length), key=lambda i: logits[i, j]) for j in range(labels)]
    best = [sorted(row) for row in logits.tolist()]
    assert margins.tolist() == [row[-1] - row[-2] if labels > 1 else 0 for row in best]
    assert chosen.tolist() == [value > 0 for value in logits[0]]
    assert distances.tolist() == [abs(value) for value in logits[0]]
    assert chooser(TASKS["number"])(logits[0])[0].size == 0


@pytest.mark.slow
@pytest.mark.parametrize("head", ["SequenceClassification", "TokenClassification", "QuestionAnswering"])
def test_exported_model_says_what_torch_said(head, artifact_folder):
    done = check(artifact_folder(head), threads=1)
    assert {checked.engine for checked in done} == set(ENGINES) & set(engines.installed())
    assert {checked.verdict for checked in done} == {"ok"}
