"""Windows over contexts, and the best stretch found in them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models import FAMILIES, SENTENCES
from tersely.data.rows import Rows
from tersely.errors import UserError
from tersely.tasks import Columns, QuestionAnswering, from_json, to_json
from tersely.tasks.question_answering import Answered

TASK = QuestionAnswering(max_seq_length=32, doc_stride=8, n_best_size=10_000, max_answer_length=6)
CONTEXT = " ".join(SENTENCES)
CONTEXTS = st.lists(
    st.sampled_from(["Paris", "the", "fox", "zz", "北京", ".", ",", "\u200b", "  ", "\u00e9"]), max_size=60
).map(" ".join)


def random_logits(features, seed=0):
    generator = np.random.default_rng(seed)
    return [generator.normal(size=(len(feature), 2)).astype(np.float32) for feature in features]


def brute_force(task, context, features, logits):
    """Every start, every end, every window."""
    best = (-np.inf, 0, 0)
    for feature, rows in zip(features, logits, strict=True):
        lead, offsets = feature.alignment
        for start in range(len(offsets)):
            for end in range(start, min(start + task.max_answer_length, len(offsets))):
                score = float(rows[lead + start, 0]) + float(rows[lead + end, 1])
                if score > best[0] and context[offsets[start][0] : offsets[end][1]].strip():
                    best = (score, int(offsets[start][0]), int(offsets[end][1]))
    return best


@pytest.mark.parametrize("family", FAMILIES)
def test_windows_equal_transformers_overflowing_pair(encoder_of, transformers_tokenizer, family):
    question = "Where is the fox?"
    features = TASK.features(TASK.examples([(question, CONTEXT)]), encoder_of(family))
    theirs = transformers_tokenizer(family)(
        question, CONTEXT, truncation="only_second", max_length=32, stride=8, return_overflowing_tokens=True,
        return_token_type_ids=True, return_offsets_mapping=True,
    )  # fmt: skip
    assert [feature.input_ids.tolist() for feature in features] == theirs["input_ids"]
    # Of windows after the first `tokenizers` forgets that the second text's type is 0; so compared with the first.
    assert features[0].token_type_ids.tolist() == theirs["token_type_ids"][0]
    second = features[0].token_type_ids[-1]
    assert all((feature.token_type_ids[feature.alignment[0] :] == second).all() for feature in features)
    for feature, owners, offsets in zip(
        features, map(theirs.sequence_ids, range(len(features))), theirs["offset_mapping"], strict=True
    ):
        lead, ours = feature.alignment
        assert lead == owners.index(1)
        assert ours.tolist() == [list(span) for span, owner in zip(offsets, owners, strict=True) if owner == 1]


@settings(max_examples=60, deadline=None)
@given(context=CONTEXTS, length=st.integers(12, 40), stride=st.none() | st.integers(0, 40))
def test_windows_cover_the_context_with_the_overlap_asked_for(encoder_of, context, length, stride):
    encoder = encoder_of("bert")
    task = dataclasses.replace(TASK, max_seq_length=length, doc_stride=stride)
    features = task.features(task.examples([("the fox?", context)]), encoder)
    (encoding,) = encoder.plain([context])
    question = len(encoder.plain(["the fox?"])[0].ids)
    room = length - encoder.pair.width - question
    overlap = min(128, room // 2) if stride is None else min(stride, room * 3 // 4)
    start = 0
    for index, feature in enumerate(features):
        assert len(feature) <= length
        lead, offsets = feature.alignment
        assert feature.input_ids[lead : lead + len(offsets)].tolist() == encoding.ids[start : start + room]
        assert [tuple(span) for span in offsets] == encoding.offsets[start : start + room]
        if index < len(features) - 1:
            assert len(offsets) == room
            start += room - overlap
    assert start + room >= len(encoding.ids)


@pytest.mark.parametrize("family", ["bert", "roberta", "albert"])
@settings(max_examples=40, deadline=None)
@given(context=CONTEXTS, seed=st.integers(0, 99), longest=st.integers(1, 8))
def test_decode_equals_brute_force(encoder_of, family, context, seed, longest):
    task = dataclasses.replace(TASK, max_answer_length=longest)
    examples = task.examples([("the fox?", context)])
    features = task.features(examples, encoder_of(family))
    logits = random_logits(features, seed)
    (answer,) = task.decode(examples, features, logits)
    score, start, end = brute_force(task, context, features, logits)
    assert answer.text == context[start:end].strip()
    assert answer.text == context[answer.start : answer.end]
    if np.isfinite(score):
        assert start <= answer.start < answer.end <= end
        assert 0 < answer.score <= 1


def test_answer_has_no_blank_at_its_ends(encoder_of):
    for family in FAMILIES:
        examples = TASK.examples([("the fox?", CONTEXT)] * 5)
        features = TASK.features(examples, encoder_of(family))
        for answer in TASK.decode(examples, features, random_logits(features)):
            assert answer.text == answer.text.strip() != ""


def test_score_is_the_share_among_the_n_best_each_stretch_counted_once(encoder_of):
    """The same stretch in the overlap of two windows is one answer."""
    task = dataclasses.replace(TASK, n_best_size=3, max_answer_length=1)
    examples = task.examples([("the fox?", CONTEXT)])
    features = task.features(examples, encoder_of("bert"))
    logits = [np.full((len(feature), 2), -100, np.float32) for feature in features]
    overlapped = {tuple(span) for span in features[0].alignment[1]} & {tuple(span) for span in features[1].alignment[1]}
    chosen = min(overlapped)
    for feature, rows in zip(features[:2], logits, strict=False):
        lead, offsets = feature.alignment
        rows[lead + [tuple(span) for span in offsets].index(chosen)] = 1.0
    lead, _ = features[2].alignment
    logits[2][lead + 12] = 0.5
    (answer,) = task.decode(examples, features, logits)
    assert (answer.start, answer.end) == chosen
    assert answer.score == pytest.approx(np.exp(2) / (np.exp(2) + np.exp(1)), abs=1e-6)


def test_small_n_best_looks_at_that_many_starts_and_ends(encoder_of):
    task = dataclasses.replace(TASK, n_best_size=1)
    examples = task.examples([("the fox?", "the quick brown fox")])
    (feature,) = task.features(examples, encoder_of("bert"))
    lead, _ = feature.alignment
    logits = np.zeros((len(feature), 2), np.float32)
    logits[lead + 2, 0], logits[lead + 1, 1] = 2, 2  # the best end stands before the best start
    (answer,) = task.decode(examples, [feature], [logits])
    assert answer.text == ""
    (answer,) = dataclasses.replace(task, n_best_size=2).decode(examples, [feature], [logits])
    assert answer.text != ""


@pytest.mark.parametrize("threshold", [-30.0, -1.0, 0.0, 1.0, 30.0])
def test_no_answer_is_given_where_it_beats_the_best_by_the_threshold(encoder_of, threshold):
    task = dataclasses.replace(TASK, no_answer=True, null_score_diff_threshold=threshold)
    examples = task.examples([("the fox?", CONTEXT)] * 20)
    features = task.features(examples, encoder_of("bert"))
    logits = random_logits(features, 5)
    for rows in logits:
        rows[0] += 2
    answers = task.decode(examples, features, logits)
    for index, answer in enumerate(answers):
        mine = [(f, rows) for f, rows in zip(features, logits, strict=True) if f.example == index]
        best, *_ = brute_force(task, CONTEXT, *zip(*mine, strict=True))
        null = min(float(rows[0].astype(np.float64).sum()) for _, rows in mine)
        assert (answer.text == "") == (null - best > threshold)
    assert all(answer.text for answer in TASK.decode(examples, features, logits))


def test_empty_context_has_no_answer(encoder_of):
    for task in (TASK, dataclasses.replace(TASK, no_answer=True)):
        examples = task.examples([("the fox?", ""), ("the fox?", "  ")])
        features = task.features(examples, encoder_of("bert"))
        answers = task.decode(examples, features, random_logits(features))
        assert [(answer.text, answer.start, answer.end) for answer in answers] == [("", 0, 0)] * 2


def test_long_question_is_cut_to_max_query_length(encoder_of):
    encoder = encoder_of("bert")
    task = dataclasses.replace(TASK, max_query_length=5)
    features = task.features(task.examples([(CONTEXT, "the fox")]), encoder)
    expected = encoder.plain([CONTEXT])[0].ids[:5]
    assert features
    assert all(feature.input_ids[1:6].tolist() == expected for feature in features)


def test_question_that_leaves_no_room_is_refused(encoder_of):
    task = dataclasses.replace(TASK, max_query_length=28)
    with pytest.raises(UserError, match="question of 28 tokens leaves no room for its context within 32 tokens"):
        task.features(task.examples([(CONTEXT, "the fox")]), encoder_of("bert"))


def rows(*records):
    return Rows.collect("squad.json", enumerate(records, start=4))


def record(answers, question="Where?", context="Ada of Paris and Paris"):
    return {"question": question, "context": context, "answers": answers}


def read(*records, labelled=True, **columns):
    return TASK.read(rows(*records), Columns(**columns), labelled)


def test_several_golds_are_read_and_the_best_scores():
    examples = read(record([{"text": "Paris", "start": 7}, {"text": "Paris and Paris", "start": 7}]))
    assert examples[0].gold == (("Paris", 7), ("Paris and Paris", 7))
    for text, expected in (("Paris", 1.0), ("Paris and Paris", 1.0), ("and Paris", 2 * 2 / (2 + 3)), ("Rome", 0.0)):
        answer = [Answered(text, 0, 0, 1.0)]
        statistics = TASK.statistics("f1", examples, answer)
        assert TASK.metrics["f1"].value(statistics.sum(axis=0)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (record(None), "no answers, so that it cannot be scored"),
        (record("Paris"), "must be a list. Got str"),
        (record([{"text": 3, "start": 0}]), "The text of an answer must be text. Got int"),
        (record([None]), "must be text. Got NoneType"),
        (record([], question=None), "Column 'question' must hold text"),
        (record([], context=5), "Column 'context' must hold text. Got int"),
    ],
)
def test_bad_row_is_named_by_file_and_line(bad, message):
    with pytest.raises(UserError, match=message) as caught:
        read(record([]), bad)
    assert caught.value.where == "squad.json:5"


@pytest.mark.parametrize("name", ["question", "context", "answers"])
def test_missing_column_says_which_exist(name):
    there = {key: value for key, value in record([]).items() if key != name}
    with pytest.raises(UserError, match=rf"Columns here: {', '.join(there)}\. Name it with {name}_column"):
        read(there)


def test_answers_are_optional_where_nothing_is_scored():
    assert read({"question": "a", "context": "b"}, labelled=False)[0].gold is None


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_targets_point_to_the_gold_text(encoder_of, family, data):
    words = CONTEXT.split(" ")
    first = data.draw(st.integers(0, len(words) - 1))
    text = " ".join(words[first : first + data.draw(st.integers(1, 3))])
    at = len(" ".join(words[:first])) + (first > 0)
    assert CONTEXT[at : at + len(text)] == text
    (example,) = read(record([{"text": text, "start": at}], context=CONTEXT))
    pointed = 0
    for feature in TASK.features([example], encoder_of(family)):
        lead, offsets = feature.alignment
        target = TASK.targets(example, feature)
        start, end = target["start_positions"] - lead, target["end_positions"] - lead
        if target["start_positions"] == 0:
            assert target["end_positions"] == 0
            continue
        pointed += 1
        assert 0 <= start <= end < len(offsets)
        assert CONTEXT[offsets[start][0] : offsets[end][1]].strip() == text
    tokens = len(encoder_of(family).plain([text])[0].ids)
    assert pointed or tokens > 8  # windows share 8 tokens: an answer of as many is whole in one of them


def test_gold_without_a_place_scores_but_is_no_target(encoder_of):
    examples = read(record([{"text": "the Paris", "start": -1}, {"text": "Paris", "start": 7}]), record(["Rome"]))
    features = TASK.features(examples, encoder_of("bert"))
    target = TASK.targets(examples[0], features[0])
    lead, offsets = features[0].alignment
    assert tuple(offsets[target["start_positions"] - lead]) == (7, 12)
    assert TASK.targets(examples[1], features[1]) == {"start_positions": 0, "end_positions": 0}
    said = [Answered(text, 0, 0, 1.0) for text in ("the Paris", "Rome")]
    assert TASK.metrics["em"].value(TASK.statistics("em", examples, said).sum(axis=0)) == 1.0


def test_question_without_answer_targets_the_first_token(encoder_of):
    (example,) = read(record([]))
    (feature,) = TASK.features([example], encoder_of("bert"))
    assert TASK.targets(example, feature) == {"start_positions": 0, "end_positions": 0}


def test_language_of_the_golds_chooses_the_rule():
    examples = read(record([{"text": "北京市", "start": -1}]))
    answer = [Answered("北京", 0, 0, 1.0)]
    f1 = TASK.metrics["f1"]
    assert f1.value(TASK.statistics("f1", examples, answer).sum(axis=0)) == pytest.approx(2 * 2 / 5)
    english = dataclasses.replace(TASK, answer_language="en")
    assert f1.value(english.statistics("f1", examples, answer).sum(axis=0)) == 0.0


@pytest.mark.parametrize("item", ["text", ("a",), ("a", 3), {"question": "a"}, None, 5])
def test_bad_input_is_named_by_its_number(item):
    with pytest.raises(UserError, match=r"Input 1 must be a \(question, context\) pair"):
        TASK.examples([("q", "c"), item])


def test_settings_survive_json():
    assert from_json(to_json(TASK)) == TASK
