"""`examples/uie/`: rows of prompts, spans and their score, and an extractor from fine-tuning to INT8."""

from __future__ import annotations

import argparse
import ast
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from seqeval.metrics import f1_score
from tokenizers import Tokenizer

import data
import evaluate
import finetune
from commands import Tersely
from features import LABELS, encode
from models import build
from tersely import PdArgumentParser, load_model
from tersely.data import Rows

UIE = Path(__file__).parents[2] / "examples" / "uie"
PEOPLE, PLACES = ("王明", "李红", "张华"), ("北京", "上海", "南公园")
TEMPLATES = ("{who}今天去{where}。", "{where}很好，{who}和{other}去散步。", "天气很好，我们散步。", "{where}在哪里？")
PROMPTS = {"PER": "人物", "LOC": "地点"}
QUICK = [
    "--engines",
    "onnxruntime",
    "--algo_list",
    "mse",
    "--calibration_rows",
    "8",
    "--use_cpu",
    "--report_to",
    "none",
]


def sentences(count: int, seed: int) -> str:
    """CoNLL's columns, a letter a line."""
    draw, found = np.random.default_rng(seed), []
    for number in range(count):
        who, other, where = draw.choice(PEOPLE), draw.choice(PEOPLE), draw.choice(PLACES)
        text = TEMPLATES[number % len(TEMPLATES)].format(who=who, other=other, where=where)
        tags = ["O"] * len(text)
        for kind, names in (("PER", PEOPLE), ("LOC", PLACES)):
            for hit in re.finditer("|".join(names), text):
                tags[hit.start() : hit.end()] = [f"B-{kind}", *[f"I-{kind}"] * (hit.end() - hit.start() - 1)]
        found.append("\n".join(f"{letter}\t{tag}" for letter, tag in zip(text, tags, strict=True)))
    return "\n\n".join(found) + "\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, run: Tersely) -> Path:
    """Rows of prompts and a small encoder."""
    folder = tmp_path_factory.mktemp("uie")
    (folder / "ner.txt").write_text(sentences(60, 0))
    (folder / "other.txt").write_text(sentences(16, 1))
    words = [f"{kind}={prompt}" for kind, prompt in PROMPTS.items()]
    done = run(
        "uie/data.py", "--ner_file", folder / "ner.txt", "--test_file", folder / "other.txt", "--prompts", *words,
        "--train_sentences", 44, "--dev_sentences", 16, "--save_dir", folder / "rows",
    )  # fmt: skip
    assert done.code == 0, done.err
    spelled = ("".join([*PEOPLE, *PLACES, *TEMPLATES, *PROMPTS.values()]),)
    build(folder / "encoder", "bert", hidden=64, std=0.05, sentences=spelled)
    return folder


def finetune_args(place: Path, *words: Any) -> list[Any]:
    rows = ["--train_path", place / "rows/train.txt", "--dev_path", place / "rows/dev.txt", "--max_seq_length", 24]
    return [*rows, "--label_names", *LABELS, *QUICK, *words]


def test_answers_are_the_words_of_the_entities(place: Path) -> None:
    rows = data.read_rows(str(place / "rows/test.txt"))
    assert len(rows) == 16 * len(PROMPTS), "every sentence with every prompt"
    names = {PROMPTS["PER"]: PEOPLE, PROMPTS["LOC"]: PLACES}
    for row in rows:
        wanted = re.findall("|".join(names[row["prompt"]]), row["content"])
        assert [answer["text"] for answer in row["result_list"]] == wanted
        assert all(row["content"][answer["start"] : answer["end"]] == answer["text"] for answer in row["result_list"])
    drawn = data.read_rows(str(place / "rows/train.txt"))
    answered = sum(bool(row["result_list"]) for row in drawn)
    assert 0 < len(drawn) - answered <= answered


def test_words_with_blanks_between_them() -> None:
    rows = Rows("a", ("words", "tags"), ({"words": ["Ada", "Lovelace", "sang"], "tags": ["B-P", "I-P", "O"]},), (1,))
    (made,) = data.prompted(rows, {"P": "person"}, " ")
    assert made["content"] == "Ada Lovelace sang"
    assert made["result_list"] == [{"text": "Ada Lovelace", "start": 0, "end": 12}]


@pytest.mark.parametrize("length", [8, 24])
def test_tokens_between_the_pointers_are_the_answers(place: Path, length: int) -> None:
    """In windows too, which hold an answer at a cut in two parts."""
    tokenizer = Tokenizer.from_file(str(place / "encoder/tokenizer.json"))
    rows = data.read_rows(str(place / "rows/test.txt"))
    made = encode(rows, tokenizer, length)
    assert max(len(row["input_ids"]) for row in made) <= length
    said = []
    for row in made:
        tokens = [tokenizer.id_to_token(number) for number in row["input_ids"]]
        pairs = sorted(evaluate.spans(row[LABELS[0]], row[LABELS[1]]))
        said += ["".join(tokens[first : last + 1]) for first, last in pairs]
    wanted = [answer["text"] for row in rows for answer in row["result_list"]]
    assert "".join(said) == "".join(wanted)
    assert (len(said) > len(wanted)) == (len(made) > len(rows)) == (length == 8)


def brute(start: Any, end: Any) -> set[tuple[int, int]]:
    """Every pair of a start and an end with no start and no end between."""
    starts, ends = (
        {i for i, chance in enumerate(start) if chance > 0.5},
        {i for i, chance in enumerate(end) if chance > 0.5},
    )
    return {
        (i, j)
        for i in starts
        for j in ends
        if i <= j and not starts & set(range(i + 1, j + 1)) and not ends & set(range(i, j))
    }


def tagged(found: set[tuple[int, int]], length: int) -> list[str]:
    tags = ["O"] * length
    for first, last in found:
        tags[first : last + 1] = ["B-X", *["I-X"] * (last - first)]
    return tags


def test_spans_and_their_f1_are_those_of_a_count_and_of_seqeval() -> None:
    draw = np.random.default_rng(0)
    start, end, *others = (draw.random((300, 12)) ** 2 for _ in range(4))
    start_labels, end_labels = (
        np.where(draw.random((300, 12)) < 0.8, chances, noise)
        for chances, noise in zip((start, end), others, strict=True)
    )
    metric = evaluate.SpanEvaluator()
    metric.update(start, end, start_labels, end_labels)
    found = [brute(*row) for row in zip(start, end, strict=True)]
    wanted = [brute(*row) for row in zip(start_labels, end_labels, strict=True)]
    right = sum(len(spans & golds) for spans, golds in zip(found, wanted, strict=True))
    assert 0 < right < min(sum(map(len, found)), sum(map(len, wanted)))
    assert metric.accumulate()[0] == pytest.approx(right / sum(map(len, found)))
    assert metric.accumulate()[1] == pytest.approx(right / sum(map(len, wanted)))
    reference = f1_score([tagged(spans, 12) for spans in wanted], [tagged(spans, 12) for spans in found])
    assert metric.accumulate()[2] == pytest.approx(reference)


def test_nothing_found_and_nothing_wanted_is_no_error() -> None:
    assert evaluate.SpanEvaluator().accumulate() == (0, 0, 0)


@pytest.fixture(scope="module")
def extractor(place: Path, run: Tersely) -> Path:
    """Fine-tuned until it finds most of the names."""
    train = ["--learning_rate", "5e-3", "--max_steps", 60, "--per_device_train_batch_size", 16, "--seed", 1]
    once = ["--save_strategy", "no", "--disable_tqdm", "true", "--do_train", "--do_eval"]
    where = ["--model_name_or_path", place / "encoder", "--output_dir", place / "model"]
    done = run("uie/finetune.py", *finetune_args(place, *where, *train, *once))
    assert done.code == 0, done.err
    assert "eval_f1" in done.out
    return place / "model"


@pytest.fixture(scope="module")
def compressed(place: Path, extractor: Path, run: Tersely) -> Path:
    """By a new process's means: the folder alone."""
    where = ["--model_name_or_path", extractor, "--output_dir", place / "out", "--do_compress"]
    how = ["--strategy", "qat", "--strategy", "dynabert+ptq", "--width_mult_list", "1/2", "--learning_rate", "1e-3"]
    done = run("uie/finetune.py", *finetune_args(place, *where, *how, "--max_steps", 4, "--importance_rows", 16))
    assert done.code == 0, done.err
    assert "(best)" in done.out
    return place / "out"


def f1_of(folder: Path, path: Path) -> float:
    """The score by a count of our own, through the door that deploys."""
    predictor, tokenizer = evaluate.open_extractor(str(folder))
    rows = encode(data.read_rows(str(path)), tokenizer, 24)
    found = [brute(*answer.outputs.values()) for answer in predictor.predict(rows)]
    wanted = [brute(*(row[name] for name in LABELS)) for row in rows]
    right = sum(len(spans & golds) for spans, golds in zip(found, wanted, strict=True))
    return 2 * right / (sum(map(len, found)) + sum(map(len, wanted)))


@pytest.mark.slow
def test_int8_is_scored_by_span_f1_in_its_engine(place: Path, extractor: Path, compressed: Path) -> None:
    result = json.loads((compressed / "result.json").read_text())
    assert result["fp32"]["score"] == pytest.approx(f1_of(extractor, place / "rows/dev.txt"))
    assert result["fp32"]["score"] > 0.6, "it has learnt something"
    made = {candidate["strategy"]: candidate for candidate in result["candidates"]}
    assert set(made) == {"qat", "dynabert+ptq"}
    for strategy, candidate in made.items():
        assert candidate["score"] == pytest.approx(f1_of(compressed / candidate["path"], place / "rows/dev.txt")), (
            strategy
        )
    assert made["qat"]["score"] > result["fp32"]["score"] - 0.2


@pytest.mark.slow
def test_pruned_extractor_opens_in_torch(place: Path, compressed: Path) -> None:
    from model import UIE as Extractor

    smaller = load_model(compressed / "torch" / "width_mult_0.5", Extractor)
    assert smaller.encoder.encoder.layer[0].attention.self.query.out_features == 32
    (pruned,) = json.loads((compressed / "result.json").read_text())["pruned"]
    score = f1_of(compressed / "torch" / "width_mult_0.5", place / "rows/dev.txt")
    assert score == pytest.approx(pruned["torch_score"])


@pytest.mark.slow
def test_compressed_extractor_is_evaluated_without_torch(place: Path, compressed: Path) -> None:
    words = ["--model_path", str(compressed / "best"), "--test_path", str(place / "rows/test.txt")]
    code = (
        f"import runpy, sys; sys.argv = ['evaluate.py', *{[*words, '--max_seq_length', '24']!r}]\n"
        f"sys.path.insert(0, {str(UIE)!r}); runpy.run_path({str(UIE / 'evaluate.py')!r}, run_name='__main__')\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    printed = float(re.search(r"F1 ([\d.]+) on 32 rows", done.stdout)[1])  # type: ignore[index]
    assert printed == pytest.approx(100 * f1_of(compressed / "best", place / "rows/test.txt"), abs=0.01)


MISTAKES: dict[str, tuple[dict[str, str], str]] = {
    "nothing to do": ({"--do_eval": "false"}, "There is nothing to do."),
    "labels by other names": ({"--label_names": "starts"}, "The rows have two labels: --label_names start_positions"),
    "rows that are nowhere": ({"--train_path": "none.txt"}, "none.txt: There is no such file."),
    "a model that is nowhere": ({"--model_name_or_path": "none"}, "none: There is no such model folder."),
    "rows without prompts": ({"--dev_path": "plain.txt"}, "plain.txt: The rows have no 'prompt'."),
    "an answer outside": ({"--dev_path": "off.txt"}, "off.txt:1: The answer 1 to 9 is outside of the text."),
    "no room for the text": ({"--max_seq_length": "5"}, "the prompt '人物' takes 5 of it."),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_one_line_and_exit_code_2(
    mistake: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Tersely
) -> None:
    changed, said = MISTAKES[mistake]
    off = {"content": "天气", "prompt": "人物", "result_list": [{"text": "x", "start": 1, "end": 9}]}
    (tmp_path / "off.txt").write_text(json.dumps(off) + "\n")
    (tmp_path / "plain.txt").write_text(json.dumps({"content": "天气", "result_list": []}) + "\n")
    monkeypatch.chdir(tmp_path)
    words = finetune_args(place, "--model_name_or_path", place / "encoder", "--output_dir", "out", "--do_eval", "true")
    for name, value in changed.items():
        at = words.index(name) + 1
        words[at : at + (2 if name == "--label_names" else 1)] = [value]
    done = run("uie/finetune.py", *words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert len(done.err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (["--prompts", "PER=人物"], "There is no prompt for the type 'LOC'."),
        (["--prompts", "PER"], "The '--prompts' option takes TYPE=prompt. Got 'PER'."),
        (["--train_sentences", "100"], "There are 60 sentences, 116 are asked for."),
    ],
)
def test_mistake_in_making_rows_is_one_line(
    changed: list[str], said: str, place: Path, tmp_path: Path, run: Tersely
) -> None:
    usual = ["--prompts", "PER=人物", "LOC=地点", "--train_sentences", 44, "--dev_sentences", 16]
    done = run("uie/data.py", "--ner_file", place / "ner.txt", "--save_dir", tmp_path / "rows", *usual, *changed)
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert said in done.err
    assert not (tmp_path / "rows").exists()


def commands() -> list[str]:
    """Every command that its page or a docstring shows."""
    pages = [(UIE / "README.md").read_text(), (UIE.parent / "README.md").read_text()]
    pages += [ast.get_docstring(ast.parse(script.read_text())) or "" for script in sorted(UIE.glob("*.py"))]
    found = [command for page in pages for command in re.findall(r"python examples/uie/(?:[^`\n\\]|\\\n)+", page)]
    return sorted({" ".join(command.replace("\\\n", " ").split()) for command in found})


@pytest.mark.parametrize("command", commands())
def test_shown_command_is_understood(command: str) -> None:
    _, script, *words = shlex.split(command)
    if Path(script).name == "finetune.py":
        parser: PdArgumentParser = finetune.command_line()
        _, _, args = parser.parse_args_into_dataclasses(words)
        assert list(args.label_names) == list(LABELS)
        assert args.do_train or args.do_compress
        return
    module: Any = {"data.py": data, "evaluate.py": evaluate}[Path(script).name]
    known: argparse.ArgumentParser = module.command_line()
    assert vars(known.parse_args(words))


def test_every_script_is_shown() -> None:
    assert {shlex.split(command)[1] for command in commands()} == {
        f"examples/uie/{name}.py" for name in ("data", "evaluate", "finetune")
    }
