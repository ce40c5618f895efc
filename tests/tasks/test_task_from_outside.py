"""A task that is written here and entered in `TASKS`: everything else takes it from what it says of itself.

Next-sentence prediction: does a sentence follow another? Its head is one of transformers' that no other task has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from models import SENTENCES, build
from serving import in_thread
from tersely import runtime
from tersely.artifact import read
from tersely.data.rows import Rows
from tersely.deploy.from_model import write_artifact
from tersely.measure.score import score
from tersely.models.folder import open_folder
from tersely.tasks import TASKS, Columns, Facts, Feature, Input, metrics
from tersely.tasks.encoder import softmax
from tersely.tasks.options import TaskOptions
from tersely.tasks.wire import OutputTensor, closed

PAIRS = list(pairwise(SENTENCES))


@dataclass(frozen=True)
class Pair:
    first: str
    second: str
    gold: int | None = None


@dataclass(frozen=True)
class Follows:
    label: int
    score: float

    def as_json(self) -> dict[str, Any]:
        return {"label": self.label, "score": self.score}

    def in_words(self) -> str:
        return "follows" if self.label == 0 else "does not follow"


class FollowsWire:
    kind = "next_sentence"
    parameters: ClassVar[Mapping[str, Any]] = {}
    outputs: ClassVar[Mapping[str, OutputTensor]] = {"SCORE": OutputTensor("FP32")}
    result_schema = closed({"score": {"type": "array", "items": {"type": "number"}}})

    def shortest(self, encoder: Any) -> int:
        return encoder.pair.width + 2

    def result(self, examples: Any, answers: Any, parameters: Any) -> dict[str, Any]:
        return {"score": [answer.score for answer in answers]}

    def tensors(self, answers: Any, parameters: Any) -> dict[str, list[Any]]:
        return {"SCORE": [answer.score for answer in answers]}

    def samples(self, language: str, pairs: bool | None) -> list[dict[str, str]]:
        return [{"first": "It rains.", "second": "Take an umbrella."}] if language == "en" else []


@dataclass(frozen=True)
class NextSentence:
    name: ClassVar[str] = "next_sentence"
    loss: ClassVar[str] = "single_label_classification"
    outputs: ClassVar[tuple[str, ...]] = ("logits",)
    facts: ClassVar[Facts] = Facts(
        call='model.predict([("a sentence", "and the next one")])',
        gives="whether it follows",
        answers_for="row",
        head="NextSentencePrediction",
        kinds={"next_sentence": None},
        inputs=(Input("first"), Input("second")),
        pipeline_tag="text-classification",
    )
    wire: ClassVar[FollowsWire] = FollowsWire()
    centred_axis: ClassVar[int] = -1
    metrics: ClassVar[Mapping[str, Any]] = metrics.CLASSIFICATION
    answer_columns: ClassVar[Mapping[str, Any]] = {"label": int, "score": float}

    labels: tuple[str, ...]
    max_seq_length: int = 64
    metric: str = "accuracy"

    def read(self, rows: Rows, columns: Columns, labelled: bool) -> list[Pair]:
        return [Pair(row["first"], row["second"], int(row["label"]) if labelled else None) for row in rows]

    def examples(self, inputs: Any) -> list[Pair]:
        return [Pair(**item) if isinstance(item, Mapping) else Pair(*item) for item in inputs]

    def features(self, examples: Any, encoder: Any) -> list[Feature]:
        seconds = [example.second for example in examples]
        found = encoder.texts([example.first for example in examples], seconds, self.max_seq_length)
        return [Feature(i, np.array(encoding.ids), np.array(encoding.type_ids)) for i, encoding in enumerate(found)]

    def targets(self, example: Any, feature: Any) -> dict[str, Any]:
        return {"labels": np.array(example.gold)}

    def decode(self, examples: Any, features: Any, logits: Any) -> list[Follows]:
        return [Follows(int(np.argmax(row)), float(softmax(row)[0])) for row in logits]

    def statistics(self, metric: str, examples: Any, answers: Any) -> Any:
        return self.metrics[metric].rows([example.gold for example in examples], [answer.label for answer in answers])

    def agreement(self, answers: Any, others: Any) -> Any:
        return np.array([[float(a.label == b.label), 1.0] for a, b in zip(answers, others, strict=True)])

    def rightness(self, examples: Any, answers: Any) -> Any:
        return np.array(
            [float(example.gold == answer.label) for example, answer in zip(examples, answers, strict=True)]
        )


@pytest.fixture(scope="module", autouse=True)
def entered() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TASKS, NextSentence.name, NextSentence)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("outside") / "model", "bert", "NextSentencePrediction", labels=2)


@pytest.fixture(scope="module")
def exported(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    records = [{"first": a, "second": b, "label": i % 2} for i, (a, b) in enumerate(PAIRS)]
    opened = open_folder(folder, TaskOptions(task="next_sentence"))
    rows = opened.task.read(Rows.collect("pairs.jsonl", enumerate(records, 1)), Columns(), labelled=True)
    return write_artifact(opened, tmp_path_factory.mktemp("outside") / "artifact", examples=rows).artifact.folder


@pytest.fixture(scope="module")
def expected(folder: Path) -> Any:
    """Shares of 'it follows' [rows] as transformers computes them."""
    import torch
    from transformers import AutoModelForNextSentencePrediction, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForNextSentencePrediction.from_pretrained(folder)
    first, second = zip(*PAIRS, strict=True)
    batch = tokenizer(list(first), list(second), truncation=True, max_length=64, padding=True, return_tensors="pt")
    with torch.no_grad():
        return model.eval()(**batch).logits.softmax(-1)[:, 0].numpy()


def test_folder_is_opened_by_its_head(folder: Path) -> None:
    task = open_folder(folder).task
    assert isinstance(task, NextSentence)
    assert (task.labels, task.max_seq_length) == (("LABEL_0", "LABEL_1"), 64)


@pytest.mark.slow
def test_artifact_answers_as_transformers_does(exported: Path, expected: Any) -> None:
    answers = runtime.load(exported, threads=1).predict(PAIRS)
    assert [answer.score for answer in answers] == pytest.approx(expected.tolist(), abs=1e-4)


@pytest.mark.slow
def test_score_is_that_of_the_answers(exported: Path, expected: Any) -> None:
    golds = np.arange(len(PAIRS)) % 2
    share = float(((expected < 0.5).astype(int) == golds).mean())
    rows = [Pair(*pair, int(gold)) for pair, gold in zip(PAIRS, golds, strict=True)]
    assert score(runtime.load(exported, threads=1), rows).value == pytest.approx(share)
    assert read(exported).manifest.score["value"] == pytest.approx(share)


@pytest.mark.slow
def test_card_shows_its_call(exported: Path) -> None:
    text = (exported / "README.md").read_text(encoding="utf-8")
    assert 'model.predict([("a sentence", "and the next one")])  # whether it follows' in text
    assert "pipeline_tag: text-classification" in text


@pytest.mark.slow
def test_server_takes_and_gives_what_it_says(exported: Path, expected: Any) -> None:
    first, second = (list(texts) for texts in zip(*PAIRS, strict=True))
    tensors = [
        {"name": name, "datatype": "BYTES", "shape": [len(texts)], "data": texts}
        for name, texts in (("FIRST", first), ("SECOND", second))
    ]
    with in_thread({"pairs": exported}) as served:
        (model,) = served.ask("/models").json
        simple = served.ask("/models/pairs", {"data": {"first": first, "second": second}}).json
        infer = served.ask("/v2/models/pairs/infer", {"inputs": tensors}).json
        lacking = served.ask("/models/pairs", {"data": {"first": first}})
        document = served.ask("/openapi.json").json
    assert (model["inputs"], model["examples"][0]["first"]) == (["first", "second"], "It rains.")
    assert simple["result"]["score"] == pytest.approx(expected.tolist(), abs=1e-4)
    assert infer["outputs"][0]["data"] == pytest.approx(expected.tolist(), abs=1e-4)
    assert (lacking.status, lacking.json["error"]) == (422, "'second' must be a text or a list of texts. Got null.")
    operation = document["paths"]["/models/pairs"]["post"]
    body = operation["requestBody"]["content"]["application/json"]["schema"]
    assert body["properties"]["data"]["required"] == ["first", "second"]
    answer = operation["responses"]["200"]["content"]["application/json"]["schema"]
    assert answer["properties"]["result"] == FollowsWire.result_schema
