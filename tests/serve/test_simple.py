"""`POST /models/<name>`: SimpleServing's shapes, with what `runtime.predict` says in them."""

from __future__ import annotations

import pytest

from models import SENTENCES
from tersely import runtime

TEXTS = [*SENTENCES, "", "x", "fox " * 60]
CONTEXT = " ".join(SENTENCES * 3)


def ask(server, name, data, parameters=None, status=200):
    body = {"data": data} if parameters is None else {"data": data, "parameters": parameters}
    said = server.ask(f"/models/{name}", body)
    assert said.status == status, said.body
    return said.json["result"] if status == 200 else said.json["error"]


@pytest.fixture(scope="module")
def predict(folders):
    loaded = {}

    def answers(name, inputs):
        if name not in loaded:
            loaded[name] = runtime.load(folders[name], threads=1)
        return loaded[name].predict(inputs)

    return answers


def test_labels_are_those_of_predict(server, predict):
    result = ask(server, "text", {"text": TEXTS})
    expected = predict("text", TEXTS)
    assert result["label"] == [answer.value for answer in expected]
    assert result["label_name"] == [answer.label for answer in expected]
    assert result["confidence"] == pytest.approx([answer.score for answer in expected], abs=1e-5)
    assert "scores" not in result


def test_pairs_are_read_as_pairs(server, predict):
    pairs = list(zip(SENTENCES, reversed(SENTENCES), strict=True))
    result = ask(server, "text", {"text": [a for a, _ in pairs], "text_pair": [b for _, b in pairs]})
    alone = ask(server, "text", {"text": [a for a, _ in pairs], "text_pair": None})
    assert result["confidence"] == pytest.approx([answer.score for answer in predict("text", pairs)], abs=1e-5)
    assert result["confidence"] != alone["confidence"]


def test_one_text_needs_no_list(server):
    assert ask(server, "text", {"text": SENTENCES[0]}) == ask(server, "text", {"text": [SENTENCES[0]]})


def test_all_scores_has_every_label(server, predict):
    (scores,) = ask(server, "text", {"text": SENTENCES[0]}, {"all_scores": True})["scores"]
    (expected,) = predict("text", SENTENCES[0])
    assert scores == pytest.approx(expected.scores, abs=1e-5)
    assert list(scores) == ["bad", "fair", "good"]


def test_max_seq_len_cuts_texts(server, predict, folders):
    uncut, cut = (ask(server, "text", {"text": SENTENCES[0]}, {"max_seq_len": n})["confidence"] for n in (32, 6))
    default = ask(server, "text", {"text": SENTENCES[0]}, {"batch_size": 1})["confidence"]
    assert cut != uncut
    assert default == uncut


def test_prob_limit_moves_the_bar(server, predict):
    (expected,) = predict("labels", SENTENCES[0])
    chances = list(expected.scores.values())
    for limit in (None, 0.0, 0.5, min(chances) + 1e-3, 1.0):
        result = ask(server, "labels", {"text": SENTENCES[0]}, {} if limit is None else {"prob_limit": limit})
        chosen = [i for i, chance in enumerate(chances) if chance > (0.5 if limit is None else limit)]
        assert result["label"] == [chosen]
        assert result["confidence"][0] == pytest.approx([chances[i] for i in chosen], abs=1e-5)


def test_numbers_are_values(server, predict):
    result = ask(server, "number", {"text": TEXTS})
    assert result == {"value": pytest.approx([answer.value for answer in predict("number", TEXTS)], abs=1e-4)}


@pytest.mark.parametrize("words", [False, True])
def test_entities_are_those_of_predict(server, predict, words):
    sentences = [text.split() for text in TEXTS] if words else TEXTS
    result = ask(server, "tags", {"text": sentences}, {"is_split_into_words": words})
    expected = predict("tags", sentences)
    assert result["tokens_label"] == [list(answer.tags) for answer in expected]
    assert result["tokens"] == [list(answer.words) for answer in expected]
    assert any(result["value"])
    for found, answer, sentence in zip(result["value"], expected, sentences, strict=True):
        text = " ".join(sentence) if words else sentence
        assert [entity["label"] for entity in found] == [entity.label for entity in answer.entities]
        for entity in found:
            first, last = entity["pos"]
            assert text[first : last + 1] == entity["entity"] == text[entity["start"] : entity["end"]]


def test_one_list_of_words_is_one_sentence(server):
    split = {"is_split_into_words": True}
    single, many = (ask(server, "tags", {"text": text}, split) for text in (["a", "fox"], [["a", "fox"]]))
    assert single == many
    assert single["tokens"] == [["a", "fox"]]


def test_answers_are_those_of_predict_in_long_contexts_too(server, predict):
    questions = [("who is the fox?", CONTEXT), ("what?", SENTENCES[3])]
    data = {"question": [q for q, _ in questions], "context": [c for _, c in questions]}
    result = ask(server, "question", data)
    for i, (answer, context) in enumerate(zip(predict("question", questions), data["context"], strict=True)):
        assert result["answer"][i] == answer.text == context[result["start"][i] : result["end"][i]] != ""
        assert (result["start"][i], result["end"][i]) == (answer.start, answer.end)
        assert result["score"][i] == pytest.approx(answer.score, abs=1e-4)
    assert result["question"] == data["question"]
    assert result["context"] == data["context"]
    other = ask(server, "question", data, {"max_seq_len": 32, "doc_stride": 4})
    assert other["score"] != result["score"]


def test_no_texts_give_empty_lists(server):
    assert ask(server, "text", {"text": []}) == {"label": [], "confidence": [], "label_name": []}
    assert ask(server, "tags", {"text": []}) == {"value": [], "tokens": [], "tokens_label": []}


BAD = [
    ("text", {}, "'text' must be a text"),
    ("text", {"text": 3}, "'text' must be a text or a list of texts. Got a number."),
    ("text", {"text": ["a", None]}, "'text', number 1, must be a text. Got null."),
    ("text", {"text": "a", "txet_pair": "b"}, "Did you mean 'text_pair'?"),
    ("text", {"text": ["a", "b"], "text_pair": ["a"]}, "There are 2 of 'text' and 1 of 'text_pair'"),
    ("text", {"text": "\ud800"}, "half a surrogate pair"),
    ("text", {"text": ["a"] * 33}, "33 texts, of which 32 are allowed"),
    ("text", {"text": "a" * 5001}, "5001 characters, of which 5000 are allowed"),
    ("tags", {"text": "a", "text_pair": "b"}, "'data' has no entry 'text_pair'"),
    ("question", {"question": "who?"}, "'context' must be a text"),
    ("question", {"question": "who? " * 200, "context": "x", "parameters": {"max_seq_len": 20}}, "no room"),
]


@pytest.mark.parametrize(("name", "data", "line"), BAD)
def test_bad_data_is_refused_in_one_line(server, name, data, line):
    data = dict(data)
    parameters = data.pop("parameters", None)
    error = ask(server, name, data, parameters, status=422)
    assert line in error
    assert "\n" not in error


WRONG = [
    ("text", {"max_seq_length": 3}, "Did you mean 'max_seq_len'?"),
    ("text", {"max_seq_len": "3"}, "must be a whole number. Got a text."),
    ("text", {"max_seq_len": True}, "must be a whole number. Got a truth value."),
    ("text", {"max_seq_len": 2}, "must be from 4 to"),
    ("text", {"prob_limit": 0.5}, "There is no parameter 'prob_limit'"),
    ("labels", {"prob_limit": 1.5}, "must be from 0 to 1"),
    ("tags", {"is_split_into_words": 1}, "must be true or false"),
    ("question", {"doc_stride": 0}, "must be at least 1"),
    ("text", [1], "'parameters' must be an object. Got a list."),
]


@pytest.mark.parametrize(("name", "parameters", "line"), WRONG)
def test_bad_parameters_are_refused_in_one_line(server, name, parameters, line):
    data = {"question": "who?", "context": "x"} if name == "question" else {"text": "a"}
    assert line in ask(server, name, data, parameters, status=422)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"3", b'{"data": NaN}', b"\xff\xfe", b'{"data": 1}', b'{"datas": {}}']
)
def test_bodies_that_are_no_request_are_refused(server, body):
    said = server.ask("/models/text", body)
    assert said.status == 422
    assert list(said.json) == ["error"]


def test_milliseconds_are_told(server):
    said = server.ask("/models/text", {"data": {"text": "a"}})
    assert 0 < float(said.headers["x-tersely-milliseconds"]) < 10_000
