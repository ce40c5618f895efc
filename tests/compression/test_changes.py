"""What a report says of a changed row: how right each answer is, its text, its answers; and the settings of a run."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tersely.compression.divide import Data
from tersely.compression.report import LONGEST, MOST_WORDS, answered, cut, texts
from tersely.compression.request import Request
from tersely.data import from_dataset
from tersely.options.compress import CompressOptions
from tersely.tasks import QuestionAnswering, SequenceClassification, TokenClassification
from tersely.tasks.question_answering import Answered, QuestionExample
from tersely.tasks.sequence_classification import TextExample
from tersely.tasks.token_classification import Tagged, WordsExample

SINGLE = SequenceClassification(("bad", "good"))
MULTI = SequenceClassification(("a", "b", "c"), problem="multi_label_classification", metric="micro_f1")
NUMBER = SequenceClassification(("x",), problem="regression", metric="pearson")


def classified(task: SequenceClassification, *logits: list[float]) -> list[Any]:
    return task.decode([], [], [np.array(row, np.float32) for row in logits])


@pytest.mark.parametrize(
    ("task", "gold", "logits", "expected", "said", "right_is"),
    [
        (SINGLE, 1, ([0, 2], [2, 0]), [1, 0], ["good (0.88)", "bad (0.88)"], "good"),
        (MULTI, (1, 0, 1), ([1, -1, 1], [-1, -1, -1]), [3, 1], ["a, c", "no label"], "a, c"),
        (MULTI, (0, 0, 0), ([-1, -1, -1], [1, -1, -1]), [3, 2], ["no label", "a"], "no label"),
        (NUMBER, 2.5, ([2.0], [4.0]), [-0.5, -1.5], ["2", "4"], "2.5"),
    ],
)
def test_classes_labels_and_numbers(
    task: Any, gold: Any, logits: Any, expected: list[float], said: list[str], right_is: str
) -> None:
    before, after = classified(task, *logits)
    example = TextExample("text", None, gold)
    assert task.rightness([example, example], [before, after]).tolist() == pytest.approx(expected)
    answers = answered(task, example, before, after, labelled=True)
    assert answers == {"fp32": said[0], "best": said[1], "gold": right_is}
    assert "gold" not in answered(task, example, before, after, labelled=False)


def test_tags_that_changed_are_told_with_their_words() -> None:
    task = TokenClassification(("O", "B-LOC"))
    words = tuple(f"w{i}" for i in range(MOST_WORDS + 5))
    gold = ("B-LOC",) * len(words)
    plain = Tagged(words, gold, (1.0,) * len(words), ())
    one_off = Tagged(words, ("O", *gold[1:]), (1.0,) * len(words), ())
    all_off = Tagged(words, ("O",) * len(words), (1.0,) * len(words), ())
    example = WordsExample(words, gold, " ".join(words))
    assert task.rightness([example] * 3, [plain, one_off, all_off]).tolist() == [len(words), len(words) - 1, 0]
    answers = answered(task, example, plain, one_off, labelled=True)
    assert answers == {"fp32": "w0 B-LOC", "best": "w0 O", "gold": "w0 B-LOC"}
    assert answered(task, example, plain, all_off, labelled=False)["best"].endswith(" and 5 more")


def test_questions_are_as_right_as_their_score_and_shown_around_the_answer() -> None:
    task = QuestionAnswering(answer_language="en")
    context = "far away " * 100 + "the company moved to Paris in 1998" + " and so on" * 100
    start = context.index("Paris")
    example = QuestionExample("Where?", context, (("Paris", start), ("in Paris", start - 3)))
    exact, part = Answered("Paris", start, start + 5, 0.9), Answered("Paris in 1998", start, start + 13, 0.8)
    found = task.rightness([example] * 2, [exact, part])
    assert found[0] == 1
    assert found[1] == pytest.approx(0.8)  # of "in Paris" both words, and one more: 2 · 2/3 · 1 / (2/3 + 1)
    answers = answered(task, example, exact, Answered("", 0, 0, 0.1), labelled=True)
    assert answers == {"fp32": "Paris", "best": "no answer", "gold": "Paris / in Paris"}
    shown = texts(example, exact)
    assert shown["question"] == "Where?"
    assert "Paris" in shown["context"]
    assert len(shown["context"]) <= LONGEST + 2


@pytest.mark.parametrize("at", [0, 5, 50, 99])
def test_cut_text_is_a_part_of_the_text_around_the_place(at: int) -> None:
    text = "".join(chr(97 + i % 26) for i in range(100))
    body = cut(text, at, longest=10).strip("…")
    assert len(body) == 10
    assert body in text
    assert text[at] in body
    assert cut(text, at, longest=100) == text


def test_settings_are_plain_and_hold_no_access_token() -> None:
    rows = from_dataset([{"text": "a"}])
    options = CompressOptions(strategy="dynabert+ptq", width_mult_list="3/4 1/2", seed=7)
    request = Request(
        "model", "out", Data(), options, {"seed", "strategy"}, training={"hub_token": "secret", "max_steps": 3},
        command=["tersely", "compress", "--hub_token", "secret", "--seed", "7", "--eval_file", "my file.tsv"],
    )  # fmt: skip
    settings = request.settings(Data(train=rows))
    assert json.loads(json.dumps(settings)) == settings
    assert "secret" not in json.dumps(settings)
    assert settings["command"].endswith("--seed 7 --eval_file 'my file.tsv'")
    assert settings["options"]["width_mult_list"] == ["3/4", "1/2"]
    again = CompressOptions(**{name: value for name, value in settings["options"].items() if value is not None})
    assert again == options
    assert (settings["given"], settings["training"]["max_steps"]) == (["seed", "strategy"], 3)
    assert settings["packages"]["numpy"] == np.__version__
