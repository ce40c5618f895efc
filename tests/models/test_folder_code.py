"""Code that comes with a model folder is never run, and nobody is asked whether it may: a piped `y` could say yes."""

from __future__ import annotations

import ast
import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tersely
from tersely.data.rows import Rows
from tersely.deploy.pipeline import pipeline_work
from tersely.errors import UserError
from tersely.models.folder import open_folder
from tersely.tasks import SequenceClassification
from tersely.tasks.options import TaskOptions
from tersely.training.finetune import LabelledRows, finetune

OWN = """
from pathlib import Path
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

Path({marker!r}).touch()

class OwnConfig(BertConfig):
    model_type = "own"

class OwnModel(BertForSequenceClassification):
    config_class = OwnConfig

class OwnTokenizer(PreTrainedTokenizerFast):
    pass
"""
CONFIG = {"auto_map": {"AutoConfig": "own.OwnConfig", "AutoModelForSequenceClassification": "own.OwnModel"}}
TOKENIZER = {"tokenizer_class": "OwnTokenizer", "auto_map": {"AutoTokenizer": [None, "own.OwnTokenizer"]}}
ELSEWHERE = {"tokenizer_class": "OwnTokenizer", "auto_map": {"AutoTokenizer": [None, "some/where--own.OwnTokenizer"]}}
REFUSED = r"cannot be loaded: it needs code .* Tersely runs no code of a model folder"


@pytest.fixture
def own(model_folder: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Makes a folder of a model type that transformers does not know, with code; the user would say yes to all."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 9))

    def make(config: dict[str, Any], tokenizer: dict[str, Any], model_type: str = "own") -> Path:
        folder = Path(shutil.copytree(model_folder(), tmp_path / "model"))
        (folder / "own.py").write_text(OWN.format(marker=str(tmp_path / "ran")))
        changed = {"config.json": {"model_type": model_type, **config}, "tokenizer_config.json": tokenizer}
        for name, changes in changed.items():
            content = json.loads((folder / name).read_text())
            (folder / name).write_text(json.dumps({**content, **changes}))
        return folder

    return make


@pytest.fixture
def untouched(own: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Callable[[], None]:
    """Asserts that nothing ran, nothing was asked and no answer was read."""

    def check() -> None:
        assert not (tmp_path / "ran").exists()
        assert sys.stdin.tell() == 0
        assert "[y/N]" not in "".join(capfd.readouterr())

    return check


def load(folder: Path) -> Any:
    return open_folder(folder).load()


def pipeline(folder: Path) -> Any:
    task = SequenceClassification(("bad", "good"), max_seq_length=8)
    return pipeline_work(folder, task, ["a"], batch_size=1, threads=1)


def train(folder: Path) -> Any:
    rows = Rows("rows", ("text", "label"), ({"text": "a", "label": "x"}, {"text": "b", "label": "y"}), (1, 2))
    options = TaskOptions(task="sequence_classification")
    return finetune(folder, LabelledRows(rows, rows), folder.parent / "out", options=options)


@pytest.mark.parametrize("use", [open_folder, pipeline, train])
@pytest.mark.parametrize("config", [{}, CONFIG], ids=["plain config", "config with code"])
@pytest.mark.parametrize("tokenizer", [TOKENIZER, ELSEWHERE], ids=["here", "elsewhere"])
def test_a_tokenizer_with_code_is_refused_in_one_line(own, untouched, use, config, tokenizer):
    folder = own(config, tokenizer)
    with pytest.raises(UserError, match=REFUSED) as caught:
        use(folder)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{folder}: ")
    untouched()


@pytest.mark.parametrize("use", [load, pipeline, train])
def test_a_model_with_code_is_refused_in_one_line(own, untouched, use):
    with pytest.raises(UserError, match=REFUSED) as caught:
        use(own(CONFIG, {}))
    assert "\n" not in str(caught.value)
    untouched()


def test_a_pipeline_with_code_is_refused_in_one_line(own, untouched):
    pipelines = {"text-classification": {"impl": "own.OwnPipeline", "pt": ["AutoModelForSequenceClassification"]}}
    with pytest.raises(UserError, match=r"The pipeline cannot be loaded: .*execute the code") as caught:
        pipeline(own({"custom_pipelines": pipelines}, {}, "bert"))
    assert "\n" not in str(caught.value)
    untouched()


def test_code_beside_a_model_that_transformers_knows_is_passed_over(own, untouched):
    folder = own(CONFIG, TOKENIZER, "bert")
    assert open_folder(folder).load().config.model_type == "bert"
    assert pipeline(folder)()
    untouched()


def test_every_load_by_transformers_says_that_no_code_is_trusted():
    found = {}
    for path in sorted(Path(tersely.__file__).parent.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = call.func.attr if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None
            if name in ("from_pretrained", "pipeline"):
                found[f"{path}:{call.lineno}"] = "trust_remote_code=False" in map(ast.unparse, call.keywords)
    assert len(found) > 5
    assert [place for place, says in found.items() if not says] == []
