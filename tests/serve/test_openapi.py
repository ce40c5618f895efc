"""The OpenAPI document is true: schemathesis makes requests of it and holds the answers against it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance",
    "negative_data_rejection", "unsupported_method",
)  # fmt: skip


def test_every_path_of_the_document_is_there(server):
    document = server.ask("/openapi.json").json
    assert document["openapi"].startswith("3.1")
    assert {"/readyz", "/models/text"} <= set(document["paths"])
    for path, operations in document["paths"].items():
        for method in operations:
            said = server.ask(path, {} if method == "post" else None)
            assert str(said.status) in operations[method]["responses"], path
            kinds = operations[method]["responses"][str(said.status)]["content"]
            assert said.headers["content-type"].split(";")[0] in kinds


def test_limits_and_parameters_of_each_model_are_in_the_document(server):
    paths = server.ask("/openapi.json").json["paths"]

    def parameters(name):
        body = paths[f"/models/{name}"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        return set(body["properties"]["parameters"]["anyOf"][0]["properties"])

    assert parameters("labels") == {"max_seq_len", "batch_size", "all_scores", "prob_limit"}
    assert parameters("tags") == {"max_seq_len", "batch_size", "is_split_into_words"}
    assert parameters("question") == {"max_seq_len", "batch_size", "doc_stride"}


@pytest.mark.long
def test_schemathesis_finds_nothing(server, tmp_path):
    command = [
        Path(sys.executable).with_name("schemathesis"), "run", f"{server.address}/openapi.json",
        "--checks", ",".join(CHECKS), "--max-examples", "20", "--seed", "1", "--no-color",
    ]  # fmt: skip
    done = subprocess.run(list(map(str, command)), cwd=tmp_path, capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
