"""SQuAD: articles to one record per question, and answers checked against their offsets."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import UserError

log = logging.getLogger(__name__)

Record = Mapping[str, Any]
COLUMNS = {"question", "context", "answers"}
"""What tells records of SQuAD from others."""


def questions(articles: Iterable[tuple[int, Record]], text: str, source: str) -> Iterator[tuple[int, Record]]:
    """Give (line, {"id", "question", "context"[, "answers"]}) of every question; `text` is the file's, for lines."""
    line, counted = 1, 0
    for offset, article in articles:
        at, searching = offset, True
        for paragraph in article["paragraphs"]:
            context = paragraph.get("context") if isinstance(paragraph, dict) else None
            if not isinstance(context, str) or not isinstance(paragraph.get("qas"), list):
                where = f"{source}:{line + text.count(chr(10), counted, at)}"
                raise UserError("A paragraph needs a 'context' and a list 'qas'.", where=where)
            for question in paragraph["qas"]:
                name = question.get("id") if isinstance(question, dict) else None
                if searching and isinstance(name, str):
                    found = text.find(json.dumps(name, ensure_ascii=False), at)
                    at, searching = max(at, found), found >= 0
                line, counted = line + text.count("\n", counted, at), at
                if name is None or not isinstance(question.get("question"), str):
                    raise UserError("A question needs an 'id' and a 'question'.", where=f"{source}:{line}")
                record = {"id": str(name), "question": question["question"], "context": context}
                if "answers" in question or question.get("is_impossible"):
                    record["answers"] = [] if question.get("is_impossible") else question["answers"]
                yield line, record


def located(records: Iterable[tuple[int, Record]], source: str) -> Iterator[tuple[int, Record]]:
    """Give every answer as {"text", "start"}, checked: context[start:] begins with text.

    An answer that stands elsewhere in the context moves to the nearest such place; one without an offset that stands
    nowhere keeps start -1 beside another that does (CMRC 2018 has such golds: they score, but cannot be trained on);
    both are counted in one warning each. An answer that is nowhere though its offset says so is an error.
    """
    moved, nowhere, first = 0, 0, ""
    for line, record in records:
        where, context = f"{source}:{line}", record.get("context")
        if record.get("answers") is None or not isinstance(context, str):
            yield line, record
            continue
        golds: list[dict[str, Any]] = []
        for text, start in pairs(record["answers"], where):
            if not text:  # how some converters write "no answer"
                continue
            place = nearest_place(text, context, start)
            if place is None and start >= 0:
                raise absent(record, text, start, where)
            if place is None:
                nowhere += 1
            elif place != start:
                moved += 1
                where_not = f"{where}: {question_name(record)}, answer '{shortened(text)}': not at {start}"
                first = first or f"{where_not}, found at {place} instead"
            golds.append({"text": text, "start": -1 if place is None else place})
        if golds and all(gold["start"] < 0 for gold in golds):
            raise absent(record, golds[0]["text"], -1, where)
        yield line, {**record, "answers": golds}
    if moved:
        log.warning("%s: %d answers do not stand at their offset; moved to the nearest place. %s", source, moved, first)
    if nowhere:
        log.warning(
            "%s: %d answers without an offset do not stand in their context; kept for scoring.", source, nowhere
        )


def pairs(answers: Any, where: str) -> list[tuple[str, int]]:
    """Give (text, start) of answers in SQuAD's form, in that of `datasets` (two lists), or in ours."""
    if isinstance(answers, Mapping) and isinstance(answers.get("text"), Sequence):
        starts = answers.get("answer_start", answers.get("start"))
        texts = [answers["text"]] if isinstance(answers["text"], str) else list(answers["text"])
        starts = [starts] if isinstance(starts, int) else list(starts or ())
        if len(texts) != len(starts):
            raise UserError(f"There are {len(texts)} answers but {len(starts)} offsets.", where=where)
        answers = [{"text": text, "start": start} for text, start in zip(texts, starts, strict=True)]
    if not isinstance(answers, Sequence) or isinstance(answers, str):
        raise UserError("'answers' must be a list.", where=where, hint='[{"text": …, "answer_start": …}]')
    result = []
    for answer in answers:
        text = answer.get("text") if isinstance(answer, Mapping) else None
        start = answer.get("answer_start", answer.get("start")) if isinstance(answer, Mapping) else None
        if not isinstance(text, str) or not isinstance(start, int):
            raise UserError("An answer needs a 'text' and a whole number 'answer_start'.", where=where)
        result.append((text, start))
    return result


def nearest_place(text: str, context: str, start: int) -> int | None:
    """Find the occurrence of the text nearest to an offset.

    >>> nearest_place("ab", "ab cd ab", 5), nearest_place("x", "ab", 0)
    (6, None)
    """
    if start >= 0 and context.startswith(text, start):
        return start
    after = context.find(text, max(start, 0))
    before = context.rfind(text, 0, max(start, 0) + len(text))
    places = [place for place in (before, after) if place >= 0]
    return min(places, key=lambda place: abs(place - start), default=None)


def absent(record: Record, text: str, start: int, where: str) -> UserError:
    """Blame an answer that does not stand in its context."""
    named = f"{question_name(record)}: the answer '{shortened(text)}'"
    what = f"{named} is not found at its offset {start}, nor anywhere in the context."
    return UserError(what, where=where, hint="An answer must be copied from its context letter by letter.")


def question_name(record: Record) -> str:
    """Name a question in a message."""
    return f"Question '{record['id']}'" if "id" in record else f"Question '{shortened(str(record['question']))}'"


def shortened(text: str, length: int = 40) -> str:
    """Cut a long text for a message."""
    return text if len(text) <= length else text[: length - 1] + "…"
