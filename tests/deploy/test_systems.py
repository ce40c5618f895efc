"""Whatever folder on whichever engine."""

from __future__ import annotations

import numpy as np
import pytest

from models import HEADS, SENTENCES
from tersely import engines
from tersely.artifact import Graph
from tersely.deploy.systems import opener, split_engine
from tersely.errors import UserError
from tersely.tasks.options import TaskOptions
from tiny_artifacts import OWN, SHARED, make_int8, reseal

GRAPH_ENGINES = [name for name in ("onnxruntime", "openvino") if name in engines.installed()]


class RecordedProgress:
    """A progress that keeps the lines it is given."""

    def __init__(self):
        from tersely.progress import SILENT

        self.track, self.lines = SILENT.track, []

    def say(self, line):
        self.lines.append(line)


@pytest.mark.slow
def test_all_ways_to_open_a_model_give_the_same_answers(artifact_folder, model_folder):
    progress = RecordedProgress()
    with opener(progress=progress) as open_system:
        systems = [open_system(model_folder(), "auto"), open_system(model_folder(), "torch", 1)]
        for folder in (artifact_folder(), model_folder()):
            systems += [open_system(folder, engine, 1) for engine in GRAPH_ENGINES]
        systems.append(open_system(artifact_folder()))
        scores = [[list(a.scores.values()) for a in s.predictor.predict(list(SENTENCES))] for s in systems]
    for found in scores[1:]:
        assert np.abs(np.array(found) - scores[0]).max() < 1e-4
    assert [system.engine for system in systems] == ["torch", "torch", *GRAPH_ENGINES * 2, "onnxruntime"]
    assert {system.model for system in systems} == {"bert-SequenceClassification"}
    assert len(progress.lines) == 1  # exported once, for all engines
    assert systems[1].predictor.engine.threads == 1
    assert systems[0].loaded == model_folder()
    exported, own = systems[2 + len(GRAPH_ENGINES)].loaded, systems[-1].loaded
    assert own == artifact_folder() / "onnx/model.onnx"
    assert not exported.exists()  # cleaned up


def test_size_is_that_of_the_graph_and_of_the_files_with_its_weights(tmp_path):
    folder = make_int8(tmp_path / "artifact")
    own, shared = ((folder / path).stat().st_size for path in (OWN, SHARED))
    reseal(folder, graphs=(Graph(OWN, ("onnxruntime",), "int8", data=(SHARED,)),))
    with opener() as open_system:
        assert open_system(folder, "onnxruntime", 1).size == own + shared


@pytest.mark.slow
def test_options_win_over_the_artifacts_settings(artifact_folder):
    with opener(TaskOptions(max_seq_length=9, metric="mcc")) as open_system:
        task = open_system(artifact_folder()).predictor.task
    assert (task.max_seq_length, task.metric, task.labels) == (9, "mcc", ("bad", "fair", "good"))
    with opener(TaskOptions(task="multi_label_classification")) as open_system:
        task = open_system(artifact_folder()).predictor.task
    assert (task.problem, task.metric) == ("multi_label_classification", "micro_f1")
    with opener(TaskOptions(doc_stride=3)) as open_system:
        assert open_system(artifact_folder(HEADS[2])).predictor.task.doc_stride == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"doc_stride": 3}, "'doc_stride' option has no effect on sequence_classification"),
        ({"metric": "f1"}, "metric 'f1' does not fit"),
        ({"max_seq_length": 97}, "option is 97, but the model has 96 positions"),
        ({"task": "token_classification"}, "head is for sequence_classification, not for token_classification"),
        ({"task": "regression"}, "head has 3 outputs; regression needs one"),
    ],
)
def test_options_that_do_not_fit_the_artifact_are_refused(artifact_folder, options, message):
    with opener(TaskOptions(**options)) as open_system, pytest.raises(UserError, match=message):
        open_system(artifact_folder())


@pytest.mark.slow
def test_artifact_on_torch_is_refused(artifact_folder):
    with opener() as open_system, pytest.raises(UserError, match=r"does not run on torch. Give the model folder"):
        open_system(artifact_folder(), "torch")


def test_unknown_engine_is_refused_before_anything_is_exported(model_folder):
    progress = RecordedProgress()
    for name in ("onnxruntme", "openvino-fp16", "torch-bf16", "torchx"):
        with opener(progress=progress) as open_system, pytest.raises(UserError, match=f"no engine '{name}'"):
            open_system(model_folder(), name)
    assert progress.lines == []
    with opener() as open_system, pytest.raises(UserError, match="Did you mean 'onnxruntime'"):
        open_system(model_folder(), "onnxruntme")


def test_missing_folder_is_named(tmp_path):
    with opener() as open_system, pytest.raises(UserError, match="absent: There is no such folder"):
        open_system(tmp_path / "absent")


def test_model_folder_is_named_by_its_own_name_wherever_one_stands(model_folder, monkeypatch):
    monkeypatch.chdir(model_folder())
    with opener() as open_system:
        assert open_system(".").model == model_folder().name


def test_engine_names_are_taken_apart():
    assert split_engine("auto") == ("auto", None)
    assert split_engine("openvino-bf16") == ("openvino", "bf16")
    with pytest.raises(UserError, match="no engine ''"):
        split_engine("")
