"""The Open Inference Protocol, asked with NVIDIA's own client."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tritonclient import http as triton
from tritonclient.utils import InferenceServerException

from models import SENTENCES
from tersely import runtime

TEXTS = [*SENTENCES, ""]


@pytest.fixture(scope="module")
def client(server):
    with triton.InferenceServerClient(server.address.removeprefix("http://")) as found:
        yield found


def tensor(name, texts, binary=True, column=False):
    shape = [len(texts), 1] if column else [len(texts)]
    made = triton.InferInput(name, shape, "BYTES")
    made.set_data_from_numpy(np.array([t.encode() for t in texts], object).reshape(shape), binary_data=binary)
    return made


def wanted(*names, binary=True):
    return [triton.InferRequestedOutput(name, binary_data=binary) for name in names]


def test_client_finds_the_server_and_its_models(client, server):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("text")
    assert client.is_model_ready("text", "1")
    assert not client.is_model_ready("nope")
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    described = client.get_model_metadata("question", "1")
    assert [tensor["name"] for tensor in described["inputs"]] == ["QUESTION", "CONTEXT"]
    assert described["outputs"] == [
        {"name": "ANSWER", "datatype": "BYTES", "shape": [-1]},
        {"name": "SCORE", "datatype": "FP32", "shape": [-1]},
    ]


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("column", [True, False])
def test_labels_and_scores_are_those_of_predict(client, folders, binary_in, binary_out, column):
    outputs = wanted("SCORE", "LABEL", "SCORES", binary=binary_out)
    answer = client.infer("text", [tensor("TEXT", TEXTS, binary_in, column)], outputs=outputs, request_id="7")
    expected = runtime.load(folders["text"], threads=1).predict(TEXTS)
    shape = (len(TEXTS), 1) if column else (len(TEXTS),)
    assert answer.as_numpy("LABEL").shape == answer.as_numpy("SCORE").shape == shape
    labels = [label.decode() if isinstance(label, bytes) else label for label in answer.as_numpy("LABEL").ravel()]
    assert labels == [answered.label for answered in expected]
    assert answer.as_numpy("SCORE").ravel() == pytest.approx([answered.score for answered in expected], abs=1e-5)
    assert answer.as_numpy("SCORES") == pytest.approx(
        np.array([[*answered.scores.values()] for answered in expected]), abs=1e-5
    )
    assert answer.get_response()["id"] == "7"
    assert [output["name"] for output in answer.get_response()["outputs"]] == ["SCORE", "LABEL", "SCORES"]


def test_all_outputs_come_in_binary_where_none_is_named(client):
    answer = client.infer("text", [tensor("TEXT", TEXTS)], model_version="1")
    assert {output["name"] for output in answer.get_response()["outputs"]} == {"LABEL", "SCORE", "SCORES"}
    assert all("binary_data_size" in output["parameters"] for output in answer.get_response()["outputs"])
    assert answer.as_numpy("SCORES").shape == (len(TEXTS), 3)


def test_one_output_alone_can_be_asked_for(client):
    answer = client.infer("text", [tensor("TEXT", TEXTS)], outputs=wanted("SCORE"))
    assert answer.as_numpy("LABEL") is None
    assert answer.as_numpy("SCORE").dtype == np.float32


def test_binary_and_json_mix(client):
    both = [*wanted("LABEL", binary=False), *wanted("SCORE", binary=True)]
    inputs = [tensor("TEXT", TEXTS, binary=False), tensor("TEXT_PAIR", TEXTS[::-1], binary=True)]
    answer = client.infer("text", inputs, outputs=both)
    again = client.infer("text", [tensor("TEXT", TEXTS), tensor("TEXT_PAIR", TEXTS[::-1])])
    assert answer.as_numpy("SCORE") == pytest.approx(again.as_numpy("SCORE"), abs=1e-6)
    assert [*answer.as_numpy("LABEL")] == [label.decode() for label in again.as_numpy("LABEL")]


def test_every_task_answers(client, folders):
    def predict(kind, inputs):
        return runtime.load(folders[kind], threads=1).predict(inputs)

    many = client.infer("labels", [tensor("TEXT", TEXTS)], parameters={"prob_limit": 0.9})
    chances = [answered.scores for answered in predict("labels", TEXTS)]
    over = [[name for name, chance in row.items() if chance > 0.9] for row in chances]
    assert [json.loads(label) for label in many.as_numpy("LABEL")] == over
    number = client.infer("number", [tensor("TEXT", TEXTS)])
    assert number.as_numpy("VALUE") == pytest.approx(
        [answered.value for answered in predict("number", TEXTS)], abs=1e-4
    )
    tags = client.infer("tags", [tensor("TEXT", TEXTS)])
    for text, answered in zip(tags.as_numpy("ENTITIES"), predict("tags", TEXTS), strict=True):
        assert json.loads(text)["tags"] == list(answered.tags)
    inputs = [tensor("QUESTION", ["who?"]), tensor("CONTEXT", [SENTENCES[3]])]
    answer = json.loads(client.infer("question", inputs).as_numpy("ANSWER")[0])
    assert answer["answer"] == predict("question", ("who?", SENTENCES[3]))[0].text


REFUSED = [
    (lambda: [tensor("TXET", ["a"])], {}, "Did you mean 'TEXT'?"),
    (lambda: [tensor("TEXT_PAIR", ["a"])], {}, "lacks the input 'TEXT'"),
    (lambda: [tensor("TEXT", ["a"]), tensor("TEXT", ["a"])], {}, "there twice"),
    (lambda: [tensor("TEXT", ["a"])], {"outputs": wanted("LOGITS")}, "no output 'LOGITS'"),
    (lambda: [tensor("TEXT", ["a"])], {"priority": 3}, "no parameter 'priority'"),
    (lambda: [tensor("TEXT", ["a"] * 40)], {}, "of which 32 are allowed"),
    (lambda: [tensor("TEXT", ["a"])], {"outputs": [triton.InferRequestedOutput("LABEL", class_count=2)]}, "no entry"),
]


@pytest.mark.parametrize(("inputs", "more", "line"), REFUSED)
def test_client_is_told_what_was_wrong(client, inputs, more, line):
    with pytest.raises(InferenceServerException, match=line):
        client.infer("text", inputs(), **more)


def test_compressed_requests_are_refused(client):
    with pytest.raises(InferenceServerException, match="Compressed"):
        client.infer("text", [tensor("TEXT", ["a"])], request_compression_algorithm="gzip")


BROKEN = [
    ({"inputs": [{"name": "TEXT", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 3}}]}, b"abc"),
    ({"inputs": [{"name": "TEXT", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 9}}]}, b"abc"),
    ({"inputs": [{"name": "TEXT", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": -1}}]}, b""),
    ({"inputs": [{"name": "TEXT", "shape": [2], "datatype": "BYTES", "parameters": {"binary_data_size": 5}}]},
     b"\1\0\0\0a"),
    ({"inputs": [{"name": "TEXT", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 5}}]},
     b"\1\0\0\0\xff"),
    ({"inputs": [{"name": "TEXT", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 6}}]},
     b"\xff\xff\xff\xffab"),
    ({"inputs": [{"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": ["a"]}]}, b"left over"),
    ({"inputs": [{"name": "TEXT", "shape": [1], "datatype": "FP32", "data": ["a"]}]}, b""),
    ({"inputs": [{"name": "TEXT", "shape": "1", "datatype": "BYTES", "data": ["a"]}]}, b""),
    ({"inputs": [{"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": "a"}]}, b""),
    ({"inputs": [{"name": ["TEXT"], "shape": [1], "datatype": "BYTES", "data": ["a"]}]}, b""),
    ({"inputs": []}, b""),
    ({"inputs": [{"name": "TEXT", "shape": [False], "datatype": "BYTES", "data": []}]}, b""),
    ({"inputs": [{"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": ["a"], "parameters": [1]}]}, b""),
    ({"inputs": [{"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": ["a"], "parameters": {"x": 1}}]}, b""),
    ({"inputs": [{"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": ["a"]}], "id": 7}, b""),
    ({"inputs": [{"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": ["a"]}], "id": "\ud800"}, b""),
]  # fmt: skip


@pytest.mark.parametrize(("content", "tail"), BROKEN)
def test_broken_requests_are_refused_in_one_line(server, content, tail):
    head = json.dumps(content).encode()
    said = server.ask("/v2/models/text/infer", head + tail, headers={"Inference-Header-Content-Length": str(len(head))})
    assert said.status == 422
    assert "\n" not in said.json["error"]


@pytest.mark.parametrize("length", ["-1", "x", "99999", "1" * 40, "²"])
def test_header_lengths_that_cannot_be_are_refused(server, length):
    headers = {"Inference-Header-Content-Length": length.encode("latin-1")}
    assert server.ask("/v2/models/text/infer", b"{}", headers=headers).status == 422
