"""An artifact answers in a process that has neither torch nor transformers."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from blocked import ABSENT, BLOCKED
from models import HEADS, SENTENCES
from tersely import runtime

LIGHT = (
    "artifact", "atomic", "bulk", "cli.export", "deploy.card", "deploy.layouts", "deploy.probe", "deploy.systems",
    "measure.benchmark", "measure.footprint", "measure.score", "models.folder", "runtime", "serve.run",
    "serve.workers", "tasks",
)  # fmt: skip
CONTEXT = " ".join(SENTENCES)
INPUTS = dict(zip(HEADS, (list(SENTENCES), [*SENTENCES, CONTEXT], [["who is the fox?", CONTEXT]]), strict=True))


def in_blocked_process(code, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED + code, *map(str, arguments)], capture_output=True, text=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_modules_import_without_them():
    in_blocked_process("import " + ", ".join(f"tersely.{module}" for module in LIGHT))


def test_the_process_really_is_without_them():
    in_blocked_process(f"""
for name in {sorted(ABSENT)}:
    try:
        __import__(name)
    except ModuleNotFoundError:
        continue
    raise SystemExit(name)
""")


@pytest.mark.slow
def test_all_tasks_answer_without_them(artifact_folder):
    code = """
import json
from tersely import runtime
inputs = json.loads(sys.argv[1])
answers = {}
for head, folder in zip(inputs, sys.argv[2:]):
    for engine in ("auto", "openvino"):
        asked = [tuple(item) if head == "QuestionAnswering" else item for item in inputs[head]]
        answers[f"{head} {engine}"] = [a.as_json() for a in runtime.load(folder, engine, 1).predict(asked)]
print(json.dumps(answers))
"""
    said = json.loads(in_blocked_process(code, json.dumps(INPUTS), *(artifact_folder(head) for head in HEADS)))
    for head in HEADS:
        for engine in ("auto", "openvino"):
            here = runtime.load(artifact_folder(head), engine, 1).predict(
                [tuple(item) if head == HEADS[2] else item for item in INPUTS[head]]
            )
            assert said[f"{head} {engine}"] == [answer.as_json() for answer in here]


@pytest.mark.slow
def test_opener_scores_an_artifact_without_them(artifact_folder):
    code = """
from tersely.measure.score import score
from tersely.tasks.options import TaskOptions
from tersely.deploy.systems import opener
from tersely.tasks.sequence_classification import TextExample
with opener(TaskOptions(max_seq_length=20, metric="macro_f1")) as open_system:
    predictor = open_system(sys.argv[1]).predictor
print(score(predictor, [TextExample("the fox", None, i % 3) for i in range(6)]).metric)
"""
    assert in_blocked_process(code, artifact_folder()).split() == ["macro_f1"]


def test_model_folder_says_what_to_install(model_folder):
    code = """
from tersely.errors import UserError
from tersely.models.folder import open_folder
try:
    open_folder(sys.argv[1])
except UserError as error:
    print(error)
"""
    said = in_blocked_process(code, model_folder())
    assert "'transformers' is not installed" in said
    assert 'pip install "accelerate>=' in said
