"""The scripts and the container recipe of `examples/deploy/`."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

import tiny_artifacts
from blocked import BLOCKED
from commands import Ran, Tersely

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "examples" / "deploy"
SCRIPTS = {"seq_cls_infer.py": "text", "token_cls_infer.py": "tags", "qa_infer.py": "question"}
POSITIONS = 48


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """An artifact by task, with positions for 48 tokens."""
    place = tmp_path_factory.mktemp("artifacts")

    def make(kind: str) -> Path:
        if not (place / kind).is_dir():
            tiny_artifacts.make(place / kind, kind)
            config = {"model_type": "bert", "max_position_embeddings": POSITIONS}
            (place / kind / "config.json").write_text(json.dumps(config))
            tiny_artifacts.reseal(place / kind, task=dict(read_task(place / kind), max_seq_length=32))
        return place / kind

    return make


def read_task(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "tersely.json").read_text())["task"])


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tersely:
    """Run a script in this process: its exit code, standard output and standard error."""

    def call(script: str, *words: str | Path) -> Ran:
        monkeypatch.syspath_prepend(str(DEPLOY))
        monkeypatch.setattr(sys, "argv", [script, *map(str, words)])
        capsys.readouterr()
        code: Any = 0
        try:
            runpy.run_path(str(DEPLOY / script), run_name="__main__")
        except SystemExit as stop:
            code = stop.code or 0
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return call


def logits(folder: Path, text: str, length: int) -> Any:
    """What NumPy makes of the model: the script's answers have to follow from it."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(length)
    ids = np.array([tokenizer.encode(text).ids])
    model = tiny_artifacts.Numpy(tokenizer.get_vocab_size(), "text")
    return model.run({"input_ids": ids, "attention_mask": np.ones_like(ids)})[0][0]


@pytest.mark.parametrize("length", [[], ["--max_length", "4"]])
@pytest.mark.parametrize("backend", ["onnx_runtime", "openvino"])
def test_classes_are_printed_as_paddlenlp_prints_them(
    backend: str, length: list[str], artifact: Callable[[str], Path], run: Tersely
) -> None:
    folder = artifact("text")
    texts = [
        "A film of quiet grace.",
        "The old river bank.",
        "Paris is the capital of France; Berlin, that of Germany.",
    ]
    words = ["--backend", backend, "--num_threads", "1", "--batch_size", "2", *length]
    done = run("seq_cls_infer.py", "--model_dir", folder, *words, *texts)
    assert done.code == 0, done.err
    for line, text, place in zip(done.out.splitlines(), texts, ["0, 0", "0, 1", "1, 0"], strict=True):
        found = logits(folder, text, int(length[1]) if length else 32)
        chance = np.exp(found).max() / np.exp(found).sum()
        batch, example = place.split(", ")
        description, score = line.rsplit(":", 1)
        label = ("bad", "fair", "good")[int(found.argmax())]
        assert description == f"Batch id:{batch}, example id:{example}, sentence1:{text}, label:{label}, similarity"
        assert float(score) == pytest.approx(chance, abs=2e-4)


def test_pair_has_two_sentences(artifact: Callable[[str], Path], run: Tersely) -> None:
    done = run("seq_cls_infer.py", "--model_dir", artifact("text"), "the fox\tthe dog")
    assert done.out.startswith("Batch id:0, example id:0, sentence1:the fox, sentence2:the dog, label:")


def test_positions_of_entities_include_both_ends(artifact: Callable[[str], Path], run: Tersely) -> None:
    text = "Paris is the capital of France; Berlin, that of Germany."
    done = run("token_cls_infer.py", "--model_dir", artifact("tags"), "--batch_size", 4, text, "北京是首都。")
    lines = done.out.splitlines()
    assert lines[:2] == [f"input data: {text}", "The model detects all entities:"]
    assert lines.count("-----------------------------") == 2
    found = re.findall(r"entity: (.*)   label: (.*)   pos: \[(\d+), (\d+)\]", done.out.split("input data: ")[1])
    assert found
    for entity, _, start, end in found:
        assert text[int(start) : int(end) + 1] == entity


def test_answers_stand_in_their_contexts(artifact: Callable[[str], Path], run: Tersely) -> None:
    contexts = ["Paris is the capital of France.", "In 1998 the company moved to Lyon."]
    pairs = ["What is it?", contexts[0], "Where did it move?", contexts[1]]
    done = run("qa_infer.py", "--model_dir", artifact("question"), *pairs)
    found = re.findall(r"question: (.*)\nanswer: (.*)   pos: \[(\d+), (\d+)\]   score: (.*)\n", done.out)
    assert [question for question, *_ in found] == pairs[::2]
    for context, (_, answer, start, end, score) in zip(contexts, found, strict=True):
        assert context[int(start) : int(end) + 1] == answer
        assert 0 < float(score) <= 1


@pytest.mark.parametrize("script", SCRIPTS)
def test_script_answers_its_samples_without_torch(script: str, artifact: Callable[[str], Path]) -> None:
    code = BLOCKED + "import runpy\nsys.argv[:1] = []\nsys.path[:0] = [sys.argv[0].rpartition('/')[0]]\n"
    code += "runpy.run_path(sys.argv[0], run_name='__main__')"
    words = [str(DEPLOY / script), "--model_dir", str(artifact(SCRIPTS[script]))]
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 2


MISTAKES = {
    "no model": (["--model_dir", "none"], "none: There is no such folder."),
    "a model for something else": (["--model_dir", "OTHER"], ", the script for"),
    "an engine that there is not": (["--backend", "tensorrt"], "The artifact has no graph for engine 'tensorrt'."),
    "empty batches": (["--batch_size", "0"], "'batch_size' option must be at least 1."),
    "more than the model's positions": (["--max_length", "64"], f"but the model has {POSITIONS} positions."),
    "no threads": (["--num_threads", "0"], "The number of threads must be at least 1."),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("script", SCRIPTS)
def test_mistake_is_one_line_and_exit_code_2(
    script: str, mistake: str, artifact: Callable[[str], Path], run: Tersely
) -> None:
    kind = SCRIPTS[script]
    other = next(form for form in SCRIPTS.values() if form != kind)
    words, said = MISTAKES[mistake]
    flags = [str(artifact(other)) if word == "OTHER" else word for word in words]
    done = run(script, "--model_dir", artifact(kind), *flags)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert len(done.err.splitlines()) == 1


def test_question_without_a_context_is_named(artifact: Callable[[str], Path], run: Tersely) -> None:
    done = run("qa_infer.py", "--model_dir", artifact("question"), "a question", "its context", "another one")
    assert (done.code, done.out) == (2, "")
    assert done.err == "The question 'another one' has no context. Give each question with its context.\n"


def test_shown_commands_run(artifact: Callable[[str], Path], run: Tersely) -> None:
    pages = [(DEPLOY / "README.md").read_text()]
    pages += [ast.get_docstring(ast.parse((DEPLOY / script).read_text())) or "" for script in SCRIPTS]
    shown = {
        " ".join(command.split()) for page in pages for command in re.findall(r"python examples/deploy/[^`\n]+", page)
    }
    assert len(shown) == 3
    for command in shown:
        script, *words = shlex.split(command)[1:]
        name = Path(script).name
        done = run(name, *(str(artifact(SCRIPTS[name])) if word == "smaller/best" else word for word in words))
        assert done.code == 0, done.err


RECIPE = (DEPLOY / "Dockerfile").read_text()


def test_container_copies_what_is_there_and_what_installing_reads() -> None:
    copied = [line.split()[1:-1] for line in RECIPE.splitlines() if line.startswith("COPY ")]
    names = [name for paths in copied for name in paths if "$" not in name]
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for name in names:
        assert (ROOT / name).exists(), name
        assert name not in ignored, name
    settings = (ROOT / "pyproject.toml").read_text()
    read = re.search(r'readme = "(.*)"', settings), re.search(r'license-files = \["(.*)"\]', settings)
    assert {"pyproject.toml", "src", *(found.group(1) for found in read if found)} == set(names)


def test_base_install_asks_for_no_torch() -> None:
    """All that `pip install tersely` brings, by what the packages installed here say that they need."""
    found, left = set(), {"tersely"}
    while left:
        name = left.pop()
        found.add(name)
        for need in importlib.metadata.requires(name) or ():
            requirement, _, condition = need.partition(";")
            package = re.split(r"[^A-Za-z0-9._-]", requirement.strip())[0].lower().replace("_", "-")
            if "extra" not in condition and package not in found and installed(package):
                left.add(package)
    assert {"numpy", "onnxruntime", "tokenizers"} <= found
    assert not {"torch", "transformers", "onnx", "datasets", "accelerate", "openvino"} & found


def installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


@pytest.mark.long
def test_steps_of_the_container_work_in_a_new_environment(artifact: Callable[[str], Path], tmp_path: Path) -> None:
    """What the recipe copies, installed as it says: there is no torch, and the model answers."""
    names = ["pyproject.toml", "README.md", "LICENSE", "src"]
    subprocess.run(["cp", "-r", *names, str(tmp_path)], cwd=ROOT, check=True)
    venv.create(tmp_path / "venv", with_pip=True)
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    python, tersely = tmp_path / "venv/bin/python", tmp_path / "venv/bin/tersely"
    assert 'pip install --no-cache-dir "/tersely${EXTRAS}"' in RECIPE
    subprocess.run([python, "-m", "pip", "install", "-q", str(tmp_path)], check=True, cwd="/", env=environment)
    listed = subprocess.run([python, "-m", "pip", "list", "--format", "json"], capture_output=True, env=environment)
    packages = {package["name"].lower() for package in json.loads(listed.stdout)}
    assert {"tersely", "onnxruntime", "tokenizers"} <= packages
    assert not {"torch", "transformers", "onnx", "openvino"} & packages
    folder = str(artifact("text"))
    subprocess.run([tersely, "check", folder], check=True, cwd=tmp_path, env=environment)
    words = RECIPE.split("CMD ")[1].strip()
    command = [tersely, *(folder if word == "/model" else word for word in json.loads(words))]
    done = subprocess.run(
        command, input="A film of quiet grace.\n", capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["label"] in ("bad", "fair", "good")
