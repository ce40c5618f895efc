"""Bodies that no client would send: whatever comes, the answer is a status and one line, never a traceback."""

from __future__ import annotations

import http.client
import json
import random

import pytest

BODIES = {
    "/models/text": {"data": {"text": ["a fox", "b"], "text_pair": None}, "parameters": {"max_seq_len": 16}},
    "/models/labels": {"data": {"text": "a"}, "parameters": {"prob_limit": 0.25, "all_scores": True}},
    "/models/number": {"data": {"text": ["狐", "x"], "text_pair": ["y", "z"]}},
    "/models/tags": {"data": {"text": [["a", "fox"], ["b"]]}, "parameters": {"is_split_into_words": True}},
    "/models/question": {"data": {"question": "who?", "context": "a fox"}, "parameters": {"doc_stride": 2}},
    "/v2/models/text/infer": {
        "id": "1",
        "inputs": [{"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": ["a"]}],
        "outputs": [{"name": "LABEL", "parameters": {"binary_data": False}}],
        "parameters": {"max_seq_len": 8},
    },
    "/v2/models/question/infer": {
        "inputs": [
            {"name": "QUESTION", "shape": [1, 1], "datatype": "BYTES", "data": ["who?"]},
            {"name": "CONTEXT", "shape": [1, 1], "datatype": "BYTES", "data": ["a fox"]},
        ]
    },
}
ODD = [None, True, 0, -1, 1e308, 10**30, "", "\ud800", "\0", "x" * 6000, [], {}, [[]], {"a": {"b": []}}, "data", "TEXT"]
ALLOWED = {200, 413, 415, 422, 503}


def mutated(draw: random.Random, value):
    """The value with something in it replaced, added, taken away or doubled."""
    if isinstance(value, dict) and value and draw.random() < 0.85:
        key = draw.choice(list(value))
        change = draw.randrange(8)
        if change == 0:
            return {k: v for k, v in value.items() if k != key}
        if change == 1:
            return {**value, draw.choice(["x", "", "data", "text", "shape", "\u202e"]): draw.choice(ODD)}
        return {**value, key: mutated(draw, value[key])}
    if isinstance(value, list) and value and draw.random() < 0.7:
        place = draw.randrange(len(value))
        change = draw.randrange(4)
        if change == 0:
            return value[:place] + value[place + 1 :]
        if change == 1:
            return value * draw.choice([2, 20, 300])
        return [*value[:place], mutated(draw, value[place]), *value[place + 1 :]]
    return draw.choice(ODD)


def raw(draw: random.Random, value) -> bytes:
    """Its JSON, one time in three with bytes flipped, cut off or put in."""
    text = bytearray(json.dumps(value, ensure_ascii=draw.random() < 0.5).encode("utf-8", "surrogatepass"))
    if draw.random() < 0.33:
        for _ in range(draw.choice([1, 1, 2, 8])):
            place = draw.randrange(len(text) + 1)
            change = draw.randrange(3)
            if change == 0:
                text[place:place] = bytes([draw.randrange(256)])
            elif change == 1:
                del text[place : place + draw.choice([1, 1, 5, 50])]
            elif place < len(text):
                text[place] = draw.randrange(256)
    return bytes(text)


def assault(server, count: int, seed: int) -> dict[int, int]:
    """Send so many mutated bodies; gives how often each status came back."""
    draw = random.Random(seed)  # noqa: S311
    statuses: dict[int, int] = {}
    connection = http.client.HTTPConnection(*server.place, timeout=60)
    for number in range(count):
        path, value = draw.choice(list(BODIES.items()))
        for _ in range(draw.choice([1, 1, 2, 3])):
            value = mutated(draw, value)
        body = raw(draw, value)
        headers = {}
        if path.startswith("/v2") and draw.random() < 0.3:
            headers["Inference-Header-Content-Length"] = str(draw.choice([len(body), len(body) - 3, 0, 10**9, "x", -1]))
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        statuses[answer.status] = statuses.get(answer.status, 0) + 1
        assert answer.status in ALLOWED, (number, path, body, content)
        assert b"Traceback" not in content
        if answer.status != 200:
            assert list(json.loads(content)) == ["error"], (number, path, body)
            assert "\n" not in json.loads(content)["error"]
    connection.close()
    return statuses


def test_bodies_of_the_fuzzer_are_good_before_they_are_spoilt(server):
    assert {path: server.ask(path, body).status for path, body in BODIES.items()} == dict.fromkeys(BODIES, 200)


def test_mutated_bodies_get_one_line(server):
    statuses = assault(server, 2_000, seed=1)
    assert statuses[422] > 1_000
    assert statuses[200] > 20
    assert server.ask("/readyz").status == 200


@pytest.mark.long
def test_ten_thousand_mutated_bodies_get_one_line(server):
    assault(server, 10_000, seed=2)
    assert server.ask("/readyz").status == 200
