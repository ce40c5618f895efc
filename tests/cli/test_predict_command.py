from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from commands import Tersely
from learnable import jsonl
from tersely.data import read

Folder = Callable[..., Path]
TEXTS = ["the dark river bank", "a film of quiet grace", "paris is the capital"]


def lines_of(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def chances(folder: Path, *texts: str) -> list[float]:
    """Probabilities through transformers alone."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        return list(model(**tokenizer(*texts, return_tensors="pt")).logits[0].softmax(-1).tolist())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["model", "artifact"])
def test_a_text_a_line_gives_an_answer_a_line(
    kind: str, tersely: Tersely, model_folder: Folder, request: pytest.FixtureRequest
) -> None:
    folder = model_folder() if kind == "model" else request.getfixturevalue("artifact_folder")()
    shown = tersely("predict", folder, stdin="\n".join(TEXTS) + "\n")
    assert (shown.code, shown.err) == (0, "")
    found = lines_of(shown.out)
    assert len(found) == 3
    for text, answer in zip(TEXTS, found, strict=True):
        expected = dict(zip(("bad", "fair", "good"), chances(model_folder(), text), strict=True))
        assert answer["scores"] == pytest.approx(expected, abs=2e-6)
        assert answer["label"] == max(expected, key=lambda name: expected[name])


def test_tab_makes_a_pair_and_so_does_json(tersely: Tersely, model_folder: Folder) -> None:
    first, second = TEXTS[:2]
    spellings = [f"{first}\t{second}", json.dumps([first, second]), json.dumps({"text": first, "text_pair": second})]
    found = lines_of(tersely("predict", model_folder(), stdin="\r\n".join(spellings)).out)
    assert found[0] == found[1] == found[2]
    expected = chances(model_folder(), first, second)
    assert list(found[0]["scores"].values()) == pytest.approx(expected, abs=2e-6)  # type: ignore[attr-defined]


def test_words_and_questions_are_answered(tersely: Tersely, model_folder: Folder) -> None:
    shown = tersely("predict", model_folder("TokenClassification"), stdin='paris is old\n["paris", "is", "old"]\n')
    first, second = lines_of(shown.out)
    assert first == second
    assert first["words"] == ["paris", "is", "old"]
    question = json.dumps({"question": "what is old", "context": "the old river"})
    both = f"{question}\nwhat is old\tthe old river\n"
    first, second = lines_of(tersely("predict", model_folder("QuestionAnswering"), stdin=both).out)
    assert first == second
    assert first["answer"] == "the old river"[first["start"] : first["end"]]  # type: ignore[misc]


def test_every_form_of_file_gives_the_same_answers(
    tersely: Tersely, model_folder: Folder, files: dict[str, Path], tmp_path: Path
) -> None:
    texts = [row["text"] for row in read(files["text"]).records]
    csv = tmp_path / "rows.csv"
    csv.write_text("text\n" + "\n".join(texts) + "\n")
    lines = jsonl(tmp_path / "rows.jsonl", [{"sentence": text} for text in texts])
    plain = tmp_path / "rows.txt"
    plain.write_text("\n".join(texts) + "\n")
    answers = [tersely("predict", model_folder(), file).out for file in (files["text"], csv, lines, plain)]
    answers.append(tersely("predict", model_folder(), stdin="\n".join(texts)).out)
    assert len(lines_of(answers[0])) == 30
    assert all(answer == answers[0] for answer in answers)
    named = jsonl(tmp_path / "named.jsonl", [{"said": text} for text in texts])
    assert tersely("predict", model_folder(), named, "--text-column", "said").out == answers[0]


@pytest.mark.parametrize(
    ("head", "kind", "rows"), [("TokenClassification", "words", 20), ("QuestionAnswering", "question", 10)]
)
def test_conll_and_squad_files_are_answered(
    head: str, kind: str, rows: int, tersely: Tersely, model_folder: Folder, files: dict[str, Path]
) -> None:
    shown = tersely("predict", model_folder(head), files[kind])
    assert shown.code == 0, shown.err
    assert len(lines_of(shown.out)) == rows


def test_batch_size_changes_no_answer(tersely: Tersely, model_folder: Folder, files: dict[str, Path]) -> None:
    single, many = (
        lines_of(tersely("predict", model_folder(), files["text"], "--batch_size", n).out) for n in ("1", "7")
    )
    assert [row["label"] for row in single] == [row["label"] for row in many]
    for first, second in zip(single, many, strict=True):
        assert first["scores"] == pytest.approx(second["scores"], abs=3e-6)


def test_output_file_is_written_whole(
    tersely: Tersely, model_folder: Folder, files: dict[str, Path], tmp_path: Path
) -> None:
    shown = tersely("predict", model_folder(), files["text"], "--output", tmp_path / "out.jsonl")
    assert (shown.code, shown.out) == (0, "")
    written = (tmp_path / "out.jsonl").read_text()
    assert written == tersely("predict", model_folder(), files["text"]).out
    broken = "fine\n{broken\n"
    shown = tersely("predict", model_folder(), "--output", tmp_path / "out.jsonl", "--overwrite", stdin=broken)
    assert shown.code == 2
    assert (tmp_path / "out.jsonl").read_text() == written
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


def test_json_prints_one_object_and_with_output_says_where(
    tersely: Tersely, model_folder: Folder, tmp_path: Path
) -> None:
    shown = tersely("predict", model_folder(), "--json", stdin="\n".join(TEXTS))
    assert len(shown.json["answers"]) == 3
    place = tmp_path / "out.jsonl"
    shown = tersely("predict", model_folder(), "--json", "--output", place, stdin="\n".join(TEXTS))
    assert shown.json == {"output": str(place), "rows": 3}
    assert len(lines_of(place.read_text())) == 3


@pytest.mark.parametrize(
    ("stdin", "said"),
    [
        (b'fine\n{"text": 1\n', "standard input:2: The line looks like JSON but is not"),
        (b"fine\n\n[1, 2]\n", "standard input:3: The line must be a text"),
        (b'{"txt": "a"}\n', "standard input:1: The line must be a text"),
        (b"fine\n\xff\xfe\n", "standard input:2: The line is not UTF-8."),
    ],
    ids=["broken", "numbers", "no text", "not utf-8"],
)
def test_bad_line_of_standard_input_is_named(stdin: bytes, said: str, tersely: Tersely, model_folder: Folder) -> None:
    shown = tersely("predict", model_folder(), stdin=stdin)
    assert shown.code == 2
    assert shown.err.startswith(f"tersely: {said}")
    assert shown.err.count("\n") == 1


def test_labels_of_rows_to_be_answered_do_not_matter(tersely: Tersely, model_folder: Folder, tmp_path: Path) -> None:
    file = jsonl(tmp_path / "rows.jsonl", [{"text": "the dark river", "label": "unheard of"}])
    shown = tersely("predict", model_folder(), file)
    assert shown.code == 0, shown.err


@pytest.mark.slow
def test_bar_on_a_terminal_keeps_answers_in_their_file(
    model_folder: Folder, files: dict[str, Path], tmp_path: Path
) -> None:
    """Standard error on a terminal, standard output in a file, as in `tersely predict … > out.jsonl`."""
    import pty

    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "tersely", "predict", str(model_folder()), str(files["text"])]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with (tmp_path / "out.jsonl").open("w") as stream:
        done = subprocess.Popen(words, stdout=stream, stderr=theirs, env=environment)
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 4096):
                shown += part
        except OSError:  # how Linux says that the other end is closed
            pass
        assert done.wait(60) == 0
    os.close(ours)
    assert len(lines_of((tmp_path / "out.jsonl").read_text())) == 30
    assert b"predict" in shown
    assert b"30/30" in shown
