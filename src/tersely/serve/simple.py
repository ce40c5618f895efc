"""SimpleServing's shapes: `{"data", "parameters"}` in, `{"result"}` out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import nearest
from ..tasks import QuestionAnswering, SequenceClassification, Task, TokenClassification
from ..tasks.question_answering import Answered, QuestionExample
from ..tasks.sequence_classification import Classified, TextExample
from ..tasks.token_classification import Tagged
from .limits import Limits, Refusal, checked_text, shown
from .models import Model
from .parameters import Parameters, read_parameters


@dataclass(frozen=True)
class Asked:
    """A request, read: the task with its parameters, and the examples."""

    task: Task
    examples: Sequence[Any]
    parameters: Parameters


def read(content: Any, model: Model, schemas: Mapping[str, Mapping[str, Any]], limits: Limits) -> Asked:
    """Check a body's JSON and take the examples out of it."""
    if not isinstance(content, dict):
        raise Refusal(422, f"The body must be an object with 'data'. Got {shown(content)}.")
    _known(content, ("data", "parameters"), "The body")
    if "data" not in content:
        raise Refusal(422, "The body lacks 'data'.")
    data = content["data"]
    if not isinstance(data, dict):
        raise Refusal(422, f"'data' must be an object with {_listed(model.inputs)}. Got {shown(data)}.")
    _known(data, model.inputs, "'data'")
    parameters = read_parameters(content.get("parameters"), schemas)
    return Asked(parameters.task(model.task), _examples(data, model, parameters, limits), parameters)


def result(asked: Asked, answers: Sequence[Any]) -> dict[str, Any]:
    """Answers in the shape of the task."""
    if isinstance(asked.task, QuestionAnswering):
        return _answered(asked.examples, answers)
    if isinstance(asked.task, TokenClassification):
        return _tagged(answers)
    return _classified(asked.task, answers, asked.parameters)


def _examples(data: Mapping[str, Any], model: Model, parameters: Parameters, limits: Limits) -> list[Any]:
    if isinstance(model.task, TokenClassification) and parameters.is_split_into_words:
        return model.task.examples(_sentences(data.get("text"), limits))
    first, second = (*model.inputs, "")[:2]
    texts = _texts(data.get(first), f"'{first}'", limits)
    if isinstance(model.task, TokenClassification):
        return model.task.examples(texts)
    if second == "text_pair" and data.get(second) is None:
        return [TextExample(text) for text in texts]
    others = _texts(data.get(second), f"'{second}'", limits)
    if len(others) != len(texts):
        raise Refusal(422, f"There are {len(texts)} of '{first}' and {len(others)} of '{second}': as many are needed.")
    kind = QuestionExample if isinstance(model.task, QuestionAnswering) else TextExample
    return [kind(text, other) for text, other in zip(texts, others, strict=True)]


def _texts(value: Any, what: str, limits: Limits) -> list[str]:
    if isinstance(value, str):
        return [checked_text(value, what, limits)]
    if not isinstance(value, list):
        raise Refusal(422, f"{what} must be a text or a list of texts. Got {shown(value)}.")
    _count(len(value), limits)
    return [checked_text(text, f"{what}, number {number},", limits) for number, text in enumerate(value)]


def _sentences(value: Any, limits: Limits) -> list[list[str]]:
    """Lists of words; one list of words is one sentence."""
    if not isinstance(value, list):
        raise Refusal(422, f"'text' must be a list of words, or of lists of words. Got {shown(value)}.")
    sentences = [value] if value and all(isinstance(word, str) for word in value) else value
    _count(len(sentences), limits)
    for number, words in enumerate(sentences):
        if not isinstance(words, list):
            raise Refusal(422, f"'text', number {number}, must be a list of words. Got {shown(words)}.")
        total = sum(len(checked_text(word, f"A word of 'text', number {number},", limits)) + 1 for word in words)
        if total > limits.max_text_length + 1:
            what = f"'text', number {number}, has {total} characters"
            raise Refusal(422, f"{what}, of which {limits.max_text_length} are allowed.")
    return sentences


def _count(texts: int, limits: Limits) -> None:
    if texts > limits.max_texts:
        raise Refusal(422, f"The request has {texts} texts, of which {limits.max_texts} are allowed.")


def _known(content: Mapping[str, Any], names: Sequence[str], what: str) -> None:
    for name in content:
        if name not in names:
            raise Refusal(422, f"{what} has no entry '{name[:60]}'. {nearest(name[:60], names)}")


def _listed(names: Sequence[str]) -> str:
    return " and ".join(f"'{name}'" for name in names)


def _classified(task: Task, answers: Sequence[Classified], parameters: Parameters) -> dict[str, Any]:
    problem = task.problem if isinstance(task, SequenceClassification) else ""
    if problem == "regression":
        return {"value": [answer.value for answer in answers]}
    found: dict[str, Any]
    if problem == "multi_label_classification":
        chances = [list(answer.scores.values()) for answer in answers]
        chosen = [[i for i, chance in enumerate(row) if chance > parameters.prob_limit] for row in chances]
        found = {
            "label": chosen,
            "confidence": [[row[i] for i in on] for row, on in zip(chances, chosen, strict=True)],
            "label_name": [[task.labels[i] for i in on] for on in chosen],
        }
    else:
        found = {
            "label": [answer.value for answer in answers],
            "confidence": [answer.score for answer in answers],
            "label_name": [answer.label for answer in answers],
        }
    if parameters.all_scores:
        found["scores"] = [answer.scores for answer in answers]
    return found


def _tagged(answers: Sequence[Tagged]) -> dict[str, Any]:
    """`pos` are the first and the last character, as there; `start` and `end` (exclusive) as Python slices."""
    value = [
        [
            {
                "pos": [entity.start, entity.end - 1],
                "entity": entity.text,
                "label": entity.label,
                "start": entity.start,
                "end": entity.end,
                "score": entity.score,
            }
            for entity in answer.entities
        ]
        for answer in answers
    ]
    tokens = [list(answer.words) for answer in answers]
    return {"value": value, "tokens": tokens, "tokens_label": [list(answer.tags) for answer in answers]}


def _answered(examples: Sequence[QuestionExample], answers: Sequence[Answered]) -> dict[str, Any]:
    return {
        "context": [example.context for example in examples],
        "question": [example.question for example in examples],
        "answer": [answer.text for answer in answers],
        "start": [answer.start for answer in answers],
        "end": [answer.end for answer in answers],
        "score": [answer.score for answer in answers],
    }
