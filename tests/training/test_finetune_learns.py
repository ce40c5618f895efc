"""Every kind of task learns, and its score is what transformers with scikit-learn and seqeval find themselves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr
from seqeval.metrics import f1_score as entity_f1
from sklearn.metrics import accuracy_score, f1_score
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

from learnable import (
    LEARN,
    LENGTH,
    conll,
    jsonl,
    number,
    pair,
    question,
    several,
    single,
    split,
    squad,
    tagged,
    tiny,
    tsv,
)  # fmt: skip
from tersely.cli import main
from tersely.data import read
from tersely.tasks.options import TaskOptions
from tersely.training.finetune import Finetuned, LabelledRows, finetune


def train(
    tmp_path: Path, files: tuple[Path, Path], task: str, head: str = "SequenceClassification", **more: Any
) -> Finetuned:
    model = tiny(tmp_path / "encoder", head)
    return finetune(
        model,
        LabelledRows(read(files[0]), read(files[1])),
        tmp_path / "out",
        options=TaskOptions(task=task, max_seq_length=LENGTH),
        training={**LEARN, **more},
    )


def logits_of(folder: Path, texts: Sequence[Any], pairs: Sequence[str] | None = None) -> np.ndarray:
    """What transformers alone makes of it, a row at a time."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    found = []
    with torch.no_grad():
        for index, text in enumerate(texts):
            second = None if pairs is None else pairs[index]
            inputs = tokenizer(text, second, truncation=True, max_length=LENGTH, return_tensors="pt")
            found.append(model(**inputs).logits[0].numpy())
    return np.stack(found)


def config_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "config.json").read_text()))


@pytest.mark.parametrize("make", [single, pair], ids=["text", "pair"])
def test_single_label_learns_and_reports_what_scikit_learn_finds(make: Any, tmp_path: Path) -> None:
    done = train(tmp_path, split(tmp_path, make, tsv, "tsv"), "sequence_classification", num_train_epochs=6)
    rows = read(tmp_path / "dev.tsv").records
    pairs = [row["text_pair"] for row in rows] if make is pair else None
    config = config_of(done.folder)
    names = [config["id2label"][str(i)] for i in np.argmax(logits_of(done.folder, [r["text"] for r in rows], pairs), 1)]
    assert done.score.value == pytest.approx(accuracy_score([row["label"] for row in rows], names), abs=1e-12)
    assert done.score.value > 0.8
    assert config["id2label"] == {"0": "bad", "1": "good"}
    assert config["problem_type"] == "single_label_classification"


@pytest.mark.slow
def test_several_labels_learn_and_report_the_micro_f1(tmp_path: Path) -> None:
    done = train(tmp_path, split(tmp_path, several, jsonl, "jsonl"), "multi_label_classification", num_train_epochs=8)
    rows = read(tmp_path / "dev.jsonl").records
    order = [config_of(done.folder)["id2label"][str(i)] for i in range(3)]
    golds = [[label in row["labels"] for label in order] for row in rows]
    found = logits_of(done.folder, [row["text"] for row in rows]) > 0
    assert order == ["animal", "place", "time"]
    assert config_of(done.folder)["problem_type"] == "multi_label_classification"
    assert done.score.value == pytest.approx(f1_score(golds, found, average="micro"), abs=1e-12)
    assert done.score.value > f1_score(golds, np.ones_like(found), average="micro") + 0.05


@pytest.mark.slow
def test_regression_learns_and_reports_the_correlation(tmp_path: Path) -> None:
    done = train(tmp_path, split(tmp_path, number, tsv, "tsv"), "regression", num_train_epochs=6)
    rows = read(tmp_path / "dev.tsv").records
    found = logits_of(done.folder, [row["text"] for row in rows])[:, 0]
    golds = [float(row["label"]) for row in rows]
    assert done.score.metric == "pearson"
    assert done.score.value == pytest.approx(pearsonr(golds, found).statistic, abs=1e-5)
    assert done.score.value > 0.5
    assert config_of(done.folder)["problem_type"] == "regression"
    assert AutoModelForSequenceClassification.from_pretrained(done.folder).num_labels == 1


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["BIOES", "BMES", "IOB1", "IOB2"])
def test_tags_of_every_scheme_learn_and_report_what_seqeval_finds(scheme: str, tmp_path: Path) -> None:
    files = split(tmp_path, tagged(scheme), conll, "conll")
    done = train(tmp_path, files, "token_classification", "TokenClassification")
    tokenizer = AutoTokenizer.from_pretrained(done.folder)
    model = AutoModelForTokenClassification.from_pretrained(done.folder).eval()
    golds, found = [], []
    for row in read(files[1]).records:
        inputs = tokenizer(list(row["words"]), is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            best = model(**inputs).logits[0].argmax(-1).tolist()
        owners = inputs.word_ids()
        first = [owners.index(word) for word in range(len(row["words"]))]
        found.append([model.config.id2label[best[place]] for place in first])
        golds.append(list(row["tags"]))
    tags = sorted({tag for row in golds for tag in row})
    # seqeval knows the middle of a name by the letter I only.
    spelled = [[[tag.replace("M-", "I-") for tag in row] for row in part] for part in (golds, found)]
    assert done.score.value == pytest.approx(entity_f1(*spelled), abs=1e-12)
    assert done.score.value > 0.8
    assert done.task.labels == tuple(tags)


@pytest.mark.slow
def test_answers_learn_though_a_gold_stands_nowhere(tmp_path: Path) -> None:
    files = split(tmp_path, question, squad, "json")
    content = json.loads(files[0].read_text())
    for paragraph in content["data"][0]["paragraphs"][:20]:
        paragraph["qas"][0]["answers"].insert(0, {"text": "nowhere to be found", "answer_start": -1})
    files[0].write_text(json.dumps(content))
    done = train(tmp_path, files, "question_answering", "QuestionAnswering", num_train_epochs=6)
    tokenizer = AutoTokenizer.from_pretrained(done.folder)
    model = AutoModelForQuestionAnswering.from_pretrained(done.folder).eval()
    right = []
    for row in read(files[1]).records:
        inputs = tokenizer(row["question"], row["context"], return_tensors="pt", return_offsets_mapping=True)
        offsets = inputs.pop("offset_mapping")[0].tolist()
        with torch.no_grad():
            output = model(**inputs)
        inside = [place for place, part in enumerate(inputs.sequence_ids()) if part == 1]
        start, end = max(
            ((s, e) for s in inside for e in inside if s <= e < s + 30),
            key=lambda span: float(output.start_logits[0, span[0]] + output.end_logits[0, span[1]]),
        )
        right.append(row["context"][offsets[start][0] : offsets[end][1]] == row["answers"][0]["text"])
    assert done.score.metrics["em"] == pytest.approx(np.mean(right), abs=1e-12)
    assert done.score.metrics["em"] > 0.8


@pytest.mark.slow
def test_notes_become_the_defaults_of_evaluate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = split(tmp_path, single, tsv, "tsv")
    model = tiny(tmp_path / "encoder")
    options = TaskOptions(task="sequence_classification", max_seq_length=12, metric="mcc")
    data = LabelledRows(read(files[0]), read(files[1]))
    done = finetune(model, data, tmp_path / "out", options=options, training=LEARN)
    code = main(["evaluate", "--model_name_or_path", str(done.folder), "--eval_file", str(files[1]), "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert code == 0
    assert (shown["metric"], shown["score"]) == ("mcc", pytest.approx(done.score.value, abs=1e-12))
    notes = json.loads((done.folder / "tersely_task.json").read_text())
    assert notes["task"]["max_seq_length"] == 12
    assert notes["score"]["value"] == done.score.value


@pytest.mark.slow
@pytest.mark.parametrize("family", ["roberta", "modernbert", "deberta_v2"])
def test_other_families_train(family: str, tmp_path: Path) -> None:
    files = split(tmp_path, pair, tsv, "tsv")
    model = tiny(tmp_path / "encoder", family=family, labels=3)
    done = finetune(
        model,
        LabelledRows(read(files[0]), read(files[1])),
        tmp_path / "out",
        options=TaskOptions(task="sequence_classification", max_seq_length=LENGTH),
        training={"max_steps": 2},
    )
    rows = read(files[1]).records
    found = logits_of(done.folder, [row["text"] for row in rows], [row["text_pair"] for row in rows])
    names = [done.task.labels[i] for i in np.argmax(found, 1)]
    assert done.steps == 2
    assert done.score.value == pytest.approx(accuracy_score([row["label"] for row in rows], names), abs=1e-12)
