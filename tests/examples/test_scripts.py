"""The scripts of `examples/` run as users run them, on small data in the formats of the real data sets."""

from __future__ import annotations

import ast
import json
import random
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commands import Tersely
from live import folder
from tersely import PdArgumentParser, runtime
from tersely.cli import main, parser_of
from tersely.cli.compress import prepare

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
CONFIG = EXAMPLES / "config.yml"
LENGTH = 48
QUICK = ["--engines", "onnxruntime", "--algo_list", "mse", "--calibration_rows", "8"]
SCRIPTS = {
    "compress_seq_cls.py": ("SequenceClassification", "clue tnews"),
    "compress_token_cls.py": ("TokenClassification", "msra_ner"),
    "compress_qa.py": ("QuestionAnswering", "clue cmrc2018"),
}
NEWS = ("100", "101", "102")
LETTERS = "今天气很好我们去公园散步北京是中华人民共和国的首都"
INPUTS: dict[str, Any] = {
    "clue tnews": "今天天气很好",
    "msra_ner": "我们去北京散步。",
    "clue cmrc2018": ("我们去", "今天天气很好,我们去公园散步。"),
}


def news(draw: random.Random, number: int) -> str:
    row = {"label": draw.choice(NEWS), "label_desc": "news_story", "sentence": letters(draw, 12), "keywords": ""}
    return json.dumps(row, ensure_ascii=False)


def sentence(draw: random.Random, number: int) -> str:
    """Entities of one letter, which a model of random weights finds now and then."""
    lines = [f"{letter}\t{draw.choice(('O', 'B-PER', 'B-LOC'))}" for letter in letters(draw, 16)]
    return "\n".join([*lines, ""])


def paragraph(draw: random.Random, number: int) -> dict[str, Any]:
    """A context that needs several windows."""
    context = letters(draw, draw.randint(60, 120))
    start = draw.randrange(len(context) - 8)
    answers = [{"text": context[start : start + 8], "answer_start": start}]
    question = {"id": f"DEV_{number}_QUERY_0", "question": letters(draw, 5), "answers": answers}
    return {"id": f"DEV_{number}", "context": context, "qas": [question]}


def letters(draw: random.Random, count: int) -> str:
    return "".join(draw.choices(LETTERS, k=count))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data sets by their names, as they are downloaded."""
    place = tmp_path_factory.mktemp("data")
    draw = random.Random(0)  # noqa: S311 - nothing secret
    for name in ("tnews", "msra_ner", "cmrc2018"):
        (place / name).mkdir()
    for split, count in (("train", 40), ("dev", 20)):
        (place / f"tnews/{split}.json").write_text("\n".join(news(draw, i) for i in range(count)))
        (place / f"msra_ner/{split}.txt").write_text("\n".join(sentence(draw, i) for i in range(count)))
        read = {"version": "v1.0", "data": [{"title": "x", "paragraphs": [paragraph(draw, i) for i in range(count)]}]}
        (place / f"cmrc2018/{split}.json").write_text(json.dumps(read, ensure_ascii=False))
    (place / "tnews/labels.json").write_text("\n".join(json.dumps({"label": name}) for name in NEWS))
    return place


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A model for each head, with the labels of the data set."""
    place = tmp_path_factory.mktemp("models")

    def make(head: str) -> Path:
        if not (place / head).is_dir():
            named = {"id2label": dict(enumerate(NEWS)), "label2id": {name: i for i, name in enumerate(NEWS)}}
            folder(place / head, head, **(named if head == "SequenceClassification" else {}))
        return place / head

    return make


def evaluated(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, Any]:
    assert main(["evaluate", *map(str, words), "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "strategy", "task"),
    [
        ("compress_seq_cls.py", ["dynabert+ptq", "--max_steps", "2"], []),
        ("compress_token_cls.py", ["ptq"], []),
        ("compress_qa.py", ["ptq"], ["--doc_stride", "8", "--max_answer_length", "9"]),
    ],
)
def test_script_compresses_what_runs_without_it(
    script: str,
    strategy: list[str],
    task: list[str],
    data: Path,
    model: Callable[[str], Path],
    tmp_path: Path,
    capsys: Any,
    run: Tersely,
) -> None:
    head, dataset = SCRIPTS[script]
    done = run(
        script, "--config", CONFIG, "--dataset", dataset, "--data_dir", data, "--model_name_or_path", model(head),
        "--output_dir", tmp_path / "out", "--max_seq_length", LENGTH, *QUICK, "--strategy", *strategy, *task,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "(best)" in done.out
    result = json.loads((tmp_path / "out/result.json").read_text())
    predictor = runtime.load(tmp_path / "out/best", engine="onnxruntime")
    assert predictor.task.max_seq_length == LENGTH, "the command line wins over config.yml"
    assert len(predictor.predict([INPUTS[dataset]])) == 1
    plain = evaluated(
        capsys, "--model_name_or_path", model(head), "--dataset", dataset, "--data_dir", data,
        "--max_seq_length", str(LENGTH), *task,
    )  # fmt: skip
    assert (result["metric"], result["fp32"]["rows"]) == (plain["metric"], 20)
    assert plain["score"] > 0
    assert result["fp32"]["score"] == pytest.approx(plain["score"]), "the folder's own score, of the same rows"


MISTAKES = {
    "a data set that is nowhere": (["--dataset", "twens", "--output_dir", "out"], "There is no data set 'twens'"),
    "no place for results": (["--dataset", "DATASET"], "The '--output_dir' option is needed."),
    "a key that no option has": (
        ["--dataset", "DATASET", "--output_dir", "out", "--config", "config.yml"],
        "config.yml:2, DefaultArgs.stratgy: There is no option 'stratgy'. Did you mean 'strategy'?",
    ),
    "a model for something else": (["--dataset", "DATASET", "--output_dir", "out"], "the script for"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("script", SCRIPTS)
def test_mistake_is_one_line_and_exit_code_2(
    script: str,
    mistake: str,
    data: Path,
    model: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run: Tersely,
) -> None:
    head, dataset = SCRIPTS[script]
    if mistake == "a model for something else":
        head = next(other for other, _ in SCRIPTS.values() if other != head)
    words, said = MISTAKES[mistake]
    (tmp_path / "config.yml").write_text("DefaultArgs:\n    stratgy: ptq\n")
    monkeypatch.chdir(tmp_path)
    flags = [dataset if word == "DATASET" else word for word in words]
    done = run(script, "--model_name_or_path", model(head), "--data_dir", data, *flags)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert len(done.err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_script_stands_on_its_own(tmp_path: Path) -> None:
    """A process of its own, in another folder: what it imports beside itself is found."""
    command = [sys.executable, str(EXAMPLES / "compress_qa.py"), "--dataset", "cmrc2018", "--output_dir", "out"]
    done = subprocess.run([*command, "--model_name_or_path", "none"], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "none: There is no such model folder. Check the path.\n"


def commands() -> list[str]:
    """Every command that a docstring or a page of the examples shows; those of `uie` have their own test."""
    pages = [page.read_text() for page in EXAMPLES.rglob("*.md")]
    pages += [ast.get_docstring(ast.parse(script.read_text())) or "" for script in EXAMPLES.rglob("*.py")]
    shown = re.compile(r"(?:python examples/(?!deploy/)|tersely compress )(?:[^`\n\\]|\\\n)+")
    found = [command.replace("\\\n", " ") for page in pages for command in shown.findall(page)]
    return sorted(
        {" ".join(command.split()) for command in found if "…" not in command and "examples/uie/" not in command}
    )


@pytest.mark.parametrize("command", commands())
def test_shown_command_is_understood(command: str, monkeypatch: Any) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    _, what, *words = shlex.split(command)
    if what == "compress" or "auto_compression" in what:
        assert not understood(*words)
        return
    import scenario

    parser = PdArgumentParser((scenario.ModelArguments, scenario.DataArguments, scenario.CompressionArguments))
    model_args, _, compression_args = parser.parse_args_into_dataclasses(words)
    assert model_args.model_name_or_path.startswith("MODELS/")
    assert compression_args.output_dir.startswith("compressed/")


def test_there_are_commands_to_understand() -> None:
    assert len(commands()) == 6, commands()


AUTOMATIC = {
    "afqmc_prune_ptq.yaml": ("dynabert+ptq", "clue afqmc"),
    "mrpc_qat.yaml": ("qat", "glue mrpc"),
    "tnews_ptq.yaml": ("ptq", "clue tnews"),
}


def understood(*words: str) -> list[str]:
    """What a command line for `tersely compress` has that is left over."""
    parser, _ = parser_of("compress")
    return parser.parse_known_args(prepare(parser, list(words)))[1]


@pytest.mark.parametrize("file", sorted(path.name for path in (EXAMPLES / "auto_compression/configs").iterdir()))
def test_automatic_config_asks_for_its_strategy(file: str) -> None:
    strategy, dataset = AUTOMATIC[file]
    parser, _ = parser_of("compress")
    path = str(EXAMPLES / "auto_compression/configs" / file)
    arguments, _ = parser.parse_known_args(prepare(parser, ["--config_path", path, "--save_dir", "out"]))
    assert arguments.strategy == [[strategy]]
    assert arguments.dataset == dataset
    assert arguments.max_seq_length == 128


@pytest.mark.slow
def test_automatic_compression_needs_a_file_only(
    data: Path, model: Callable[[str], Path], tmp_path: Path, run: Tersely
) -> None:
    """The file's gate too: a score that the model does not have stops it."""
    text = (EXAMPLES / "auto_compression/configs/tnews_ptq.yaml").read_text()
    text = text.replace("128", str(LENGTH)).replace("./models/tnews", str(model("SequenceClassification")))
    for name, origin, target in (("fits.yaml", "0.35", "0.0"), ("not.yaml", "0.9", "0.8")):
        said = re.sub("origin_metric: .*", f"origin_metric: {origin}", text)
        (tmp_path / name).write_text(re.sub("target_metric: .*", f"target_metric: {target}", said))
    rows = ["--data_dir", data, "--engines", "onnxruntime", "--origin_tolerance", "0.4", "--algo_list", "mse"]
    script = "auto_compression/run.py"
    refused = run(script, "--config_path", tmp_path / "not.yaml", "--save_dir", tmp_path / "no", *rows)
    assert refused.code == 2
    assert "origin_metric" in refused.err
    done = run(script, "--config_path", tmp_path / "fits.yaml", "--save_dir", tmp_path / "out", *rows)
    assert done.code == 0, done.err
    (answer,) = runtime.load(tmp_path / "out/best", engine="onnxruntime").predict([INPUTS["clue tnews"]])
    assert answer.label in NEWS
