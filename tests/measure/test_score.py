"""Scores equal scikit-learn's and seqeval's on the same answers; comparisons equal those by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from models import HEADS, SENTENCES, build
from tersely import runtime
from tersely.engines import load
from tersely.errors import UserError
from tersely.measure.score import compare, score
from tersely.models.folder import open_folder
from tersely.models.torch_folder import load_module
from tersely.runtime import Predictor
from tersely.tasks.options import TaskOptions
from tersely.tasks.question_answering import QuestionExample
from tersely.tasks.sequence_classification import TextExample
from tersely.tasks.token_classification import WordsExample

ROWS = [TextExample(text[i : i + 40], None, (i * 7 + len(text)) % 3) for text in SENTENCES for i in range(0, 30, 3)]


@pytest.fixture(scope="module")
def predictor(model_folder):
    made = {}

    def make(head=HEADS[0]):
        if head not in made:
            opened = open_folder(model_folder(head))
            made[head] = Predictor(opened.task, opened.encoder, load("torch", load_module(opened.path), threads=1))
        return made[head]

    return make


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """The same build with other weights: another system on the same rows."""
    folder = build(tmp_path_factory.mktemp("other") / "model", layers=1, seed=5)
    opened = open_folder(folder)
    return Predictor(opened.task, opened.encoder, load("torch", load_module(folder), threads=1))


class Changed:
    """An engine whose logits are changed on the way out."""

    def __init__(self, engine, change):
        self.engine, self.change = engine, change

    def run(self, batch):
        return tuple(self.change(output.copy()) for output in self.engine.run(batch))


def changed(predictor, change):
    return dataclasses.replace(predictor, engine=Changed(predictor.engine, change))


def test_classification_metrics_equal_sklearn(predictor):
    found = score(predictor(), ROWS)
    golds, answers = [row.gold for row in ROWS], [answer.value for answer in found.answers.by_row]
    assert len(set(answers)) > 1
    assert found.metrics == {
        "accuracy": pytest.approx(sklearn_metrics.accuracy_score(golds, answers)),
        "macro_f1": pytest.approx(sklearn_metrics.f1_score(golds, answers, average="macro")),
        "mcc": pytest.approx(sklearn_metrics.matthews_corrcoef(golds, answers)),
    }
    assert (found.metric, found.value, found.rows) == ("accuracy", found.metrics["accuracy"], len(ROWS))
    assert found.interval[0] < found.value < found.interval[1]
    assert found.seconds > 0


def test_multi_label_metrics_equal_sklearn(predictor, model_folder):
    task = open_folder(model_folder(), TaskOptions(task="multi_label_classification")).task
    golds = np.random.default_rng(0).integers(0, 2, (len(ROWS), 3))
    rows = [TextExample(row.text, None, tuple(gold)) for row, gold in zip(ROWS, golds.tolist(), strict=True)]
    found = score(dataclasses.replace(predictor(), task=task), rows)
    answers = np.array([answer.value for answer in found.answers.by_row])
    for average in ("micro", "macro"):
        expected = sklearn_metrics.f1_score(golds, answers, average=average, zero_division=0)
        assert found.metrics[f"{average}_f1"] == pytest.approx(expected)
    assert found.metrics["accuracy"] == pytest.approx(sklearn_metrics.accuracy_score(golds, answers))
    assert found.metric == "micro_f1"


def test_regression_metrics_equal_numpy_and_sklearn(tmp_path):
    opened = open_folder(build(tmp_path / "model", labels=1, layers=1))
    golds = np.random.default_rng(0).normal(size=len(ROWS))
    rows = [TextExample(row.text, None, float(gold)) for row, gold in zip(ROWS, golds, strict=True)]
    found = score(Predictor(opened.task, opened.encoder, load("torch", load_module(opened.path), threads=1)), rows)
    answers = [answer.value for answer in found.answers.by_row]
    assert found.metrics["pearson"] == pytest.approx(np.corrcoef(golds, answers)[0, 1])
    assert found.metrics["mse"] == pytest.approx(sklearn_metrics.mean_squared_error(golds, answers))


def test_entity_metrics_equal_seqeval(predictor):
    from seqeval import metrics as seqeval_metrics

    model = predictor(HEADS[1])
    generator = np.random.default_rng(0)
    rows = []
    for text in SENTENCES[:6]:
        words = tuple(text.split())
        rows.append(WordsExample(words, tuple(generator.choice(model.task.labels, len(words)))))
    rows = [dataclasses.replace(example, gold=row.gold) for example, row in zip(
        model.task.examples([list(row.words) for row in rows]), rows, strict=True
    )]  # fmt: skip
    found = score(model, rows)
    golds, answers = [list(row.gold) for row in rows], [list(answer.tags) for answer in found.answers.by_row]
    assert found.metrics["f1"] == pytest.approx(seqeval_metrics.f1_score(golds, answers))
    assert found.metrics["precision"] == pytest.approx(seqeval_metrics.precision_score(golds, answers))
    assert found.metrics["recall"] == pytest.approx(seqeval_metrics.recall_score(golds, answers))


def test_answers_score_full_marks_against_themselves(predictor):
    model = predictor(HEADS[2])
    context = " ".join(SENTENCES)
    answers = model.predict([(question, context) for question in SENTENCES[:4]])
    rows = [
        QuestionExample(question, context, (("nothing of the kind", -1), (answer.text, answer.start)))
        for question, answer in zip(SENTENCES, answers, strict=False)
    ]
    found = score(model, rows)
    assert found.metrics == {"f1": 1.0, "em": 1.0}


def test_no_interval_is_drawn_unless_asked_for(predictor):
    assert score(predictor(), ROWS, resamples=0).interval is None


def test_no_rows_are_refused(predictor):
    with pytest.raises(UserError, match="no rows to score"):
        score(predictor(), [])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("head", HEADS)
def test_logits_that_are_not_numbers_are_refused_with_the_row(predictor, head, value):
    model = predictor(head)
    rows = {
        HEADS[0]: ROWS[:3],
        HEADS[1]: [WordsExample(("a", "b"), ("O", "O"), "a b", ((0, 1), (2, 3)))] * 3,
        HEADS[2]: [QuestionExample("a", "b c", (("b", 0),))] * 3,
    }[head]

    def spoil(logits):
        logits[-1] = value
        return logits

    with pytest.raises(UserError, match=r"not numbers \(NaN\) for row [123]"):
        score(changed(model, spoil), rows)


def test_drop_and_fidelity_equal_those_by_hand(predictor, other):
    reference, scored = score(predictor(), ROWS), score(other, ROWS)
    found = compare(predictor().task, reference, scored)
    right = [[a.value == row.gold for a, row in zip(s.answers.by_row, ROWS, strict=True)] for s in (reference, scored)]
    assert found.drop.drop == pytest.approx(np.mean(right[0]) - np.mean(right[1]))
    assert found.drop.low <= found.drop.drop <= found.drop.high
    pairs = zip(reference.answers.by_row, scored.answers.by_row, strict=True)
    assert found.same_answer == pytest.approx(np.mean([a.value == b.value for a, b in pairs]))
    assert 0 < found.same_answer < 1
    before, after = (np.array(s.answers.logits, np.float64) for s in (reference, scored))
    change = (after - after.mean(1, keepdims=True)) - (before - before.mean(1, keepdims=True))
    assert found.mean_abs_logit_change == pytest.approx(np.abs(change).mean())


def test_common_shift_of_logits_changes_nothing(predictor):
    for head, rows in ((HEADS[0], ROWS[:9]), (HEADS[2], [QuestionExample("a", "b c d", (("b", 0),))] * 3)):
        model = predictor(head)
        reference, shifted = score(model, rows), score(changed(model, lambda logits: logits + 3), rows)
        found = compare(model.task, reference, shifted)
        assert found.mean_abs_logit_change == pytest.approx(0, abs=1e-5)
        assert (found.drop.drop, found.same_answer) == (0.0, 1.0)


def test_system_with_other_windows_has_no_logit_change(predictor):
    model = predictor(HEADS[2])
    rows = [QuestionExample("who?", " ".join(SENTENCES), (("Paris", -1),))] * 2
    shorter = dataclasses.replace(model, task=dataclasses.replace(model.task, max_seq_length=40))
    found = compare(model.task, score(model, rows), score(shorter, rows))
    assert found.mean_abs_logit_change is None
    assert 0 <= found.same_answer <= 1


def test_rise_of_an_error_is_a_drop(tmp_path):
    opened = open_folder(build(tmp_path / "model", labels=1, layers=1), TaskOptions(metric="mse"))
    model = Predictor(opened.task, opened.encoder, load("torch", load_module(opened.path), threads=1))
    answers = [answer.value for answer in model.predict([row.text for row in ROWS])]
    rows = [TextExample(row.text, None, answer) for row, answer in zip(ROWS, answers, strict=True)]
    worse = score(changed(model, lambda logits: logits + 0.5), rows)
    found = compare(model.task, score(model, rows), worse)
    assert found.drop.drop == pytest.approx(0.25, rel=1e-4)
    assert found.mean_abs_logit_change == pytest.approx(0.5, rel=1e-4)


@pytest.mark.slow
def test_artifact_scores_as_the_model_does(predictor, artifact_folder):
    reference = score(predictor(), ROWS)
    found = compare(predictor().task, reference, score(runtime.load(artifact_folder()), ROWS))
    assert (found.drop.drop, found.same_answer) == (0.0, 1.0)
    assert found.mean_abs_logit_change < 1e-5
