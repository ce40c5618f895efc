"""`tersely serve`: what is wrong is said in one line, before anything is loaded."""

from __future__ import annotations

import json
import socket

import pytest

import tiny_artifacts
from tersely.serve.server_options import share_cores


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_artifacts.make(tmp_path_factory.mktemp("served") / "text")


def refused(tersely, *words):
    ran = tersely("serve", *words)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.count("\n") == 1
    return ran.err


def test_port_in_use(tersely, folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert "is in use" in refused(tersely, folder, "--port", str(taken.getsockname()[1]))


def test_bad_folders(tersely, folder, tmp_path):
    assert "no such folder" in refused(tersely, tmp_path / "nowhere")
    assert "not a Tersely artifact" in refused(tersely, tmp_path)
    assert "no such folder" in refused(tersely, f"x={tmp_path / 'nowhere'}")


def test_two_models_of_one_name(tersely, folder, tmp_path):
    other = tiny_artifacts.copy(folder, tmp_path / "other")
    assert "Two models are named 'text'" in refused(tersely, folder, f"text={other}")
    assert "cannot be the name" in refused(tersely, f"a b={folder}")


def test_a_changed_byte_is_found(tersely, folder, tmp_path):
    damaged = tiny_artifacts.copy(folder, tmp_path / "damaged")
    (damaged / "tokenizer.json").write_text("{}")
    assert "has changed" in refused(tersely, damaged, "--port", "0")


@pytest.mark.slow
def test_what_a_worker_finds_is_said_once(tersely, folder, tmp_path):
    damaged = tiny_artifacts.copy(folder, tmp_path / "damaged")
    (damaged / "tokenizer.json").write_text("{}")
    ran = tersely("serve", damaged, "--port", "0", "--workers", "2")
    assert (ran.code, "has changed" in ran.err) == (2, True)


def test_a_model_of_its_owners_is_not_served(tersely, folder, tmp_path):
    own = tiny_artifacts.copy(folder, tmp_path / "own")
    task = {"name": "own", "model_class": "Mine", "inputs": ["input_ids"], "outputs": ["logits"]}
    tiny_artifacts.reseal(own, task=task)
    assert "of its owner's" in refused(tersely, own)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--port", "70000"], "from 0 to 65535"),
        (["--host", "no.such.host.invalid"], "no address"),
        (["--workers", "0"], "--workers"),
        (["--threads", "-1"], "--threads"),
        (["--threads", "1", "--streams", "2"], "from 1 to the 1 threads"),
        (["--max_body", "0"], "--max_body"),
        (["--max_texts", "1000"], "never be taken"),
        (["--api_key", " "], "API key"),
        (["--engine", "torhc", "--port", "0"], "torhc"),
        (["--max_bdoy", "3"], "Did you mean '--max_body'?"),
    ],
)
def test_bad_options(tersely, folder, words, line):
    assert line in refused(tersely, folder, *words)


def test_missing_packages_are_named_with_the_line_that_installs_them(tersely, folder, monkeypatch):
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else found(name))
    assert 'pip install "httptools>=' in refused(tersely, folder)


@pytest.mark.parametrize(
    ("wanted", "cores", "expected"),
    [((None, None), 1, (1, 1)), ((None, None), 6, (1, 6)), ((None, None), 32, (8, 4)), ((3, None), 2, (3, 1)),
     ((None, 2), 8, (2, 2)), ((2, 3), 64, (2, 3))],
)  # fmt: skip
def test_cores_are_shared(wanted, cores, expected):
    assert share_cores(*wanted, cores=cores) == expected


@pytest.mark.slow
def test_what_is_served_is_told_as_json(folder):
    from serving import in_process

    with in_process(f"mine={folder}", TERSELY_API_KEY="k") as (server, _):
        assert server.ask("/models").status == 401
        said = server.ask("/models", headers={"X-API-Key": "k"})
        assert [model["name"] for model in json.loads(said.body)] == ["mine"]
