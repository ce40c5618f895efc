"""Artifacts by their address on the Hub: the same answers, the same checks, once downloaded; or one clear line."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from blocked import BLOCKED
from loopback_hub import Client, environment, serve
from models import SENTENCES
from sealing import rewrite, write_version_1
from tersely import artifact as artifacts
from tersely import runtime
from tersely.errors import UserError
from tersely.runtime.hub import Address, parse
from tersely.runtime.predictor import local_folder
from tersely.serve.models import named_folders

TEXTS = list(SENTENCES)
GRAPH = "onnx/model.onnx"
PREDICT = "import sys; from tersely.cli import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture(scope="module")
def hub(artifact_folder):
    """The artifact as `owner/name`, with files beside it that do not belong to it."""
    with serve() as found:
        folder = artifact_folder()
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        files |= {"optimizer.pt": b"0" * 1000, ".gitattributes": b"*.onnx filter=lfs\n"}
        found.commit = found.upload("owner/name", files)
        yield found


@pytest.fixture(scope="module")
def client(hub, tmp_path_factory):
    opened = Client(hub.address, tmp_path_factory.mktemp("hf"))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def unconnected(tmp_path_factory):
    """A client whose Hub has gone."""
    with serve() as gone:
        address = gone.address
    opened = Client(address, tmp_path_factory.mktemp("hf"))
    yield opened
    opened.close()


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def filled(client, hub, tmp_path_factory):
    """A cache that holds a copy."""
    place = tmp_path_factory.mktemp("filled")
    client.answers(place, "hub:owner/name", TEXTS)
    hub.requests.clear()
    return place


@pytest.fixture
def rows(tmp_path):
    place = tmp_path / "rows.tsv"
    place.write_text("text\tlabel\n" + "".join(f"{text}\tgood\n" for text in TEXTS))
    return place


def answers(folder):
    return [answer.as_json() for answer in runtime.load(folder, threads=1).predict(TEXTS)]


def manifest(folder):
    return json.loads((folder / artifacts.MANIFEST).read_text())


def in_process(hub, cache, tmp_path, *words, **more):
    variables = environment(hub.address, tmp_path / "hf", TERSELY_CACHE=str(cache), **more)
    return subprocess.Popen(
        [sys.executable, "-c", PREDICT, *map(str, words)], env=variables,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_answers_are_those_of_the_folder_and_only_its_files_are_fetched_once(client, hub, cache, artifact_folder):
    hub.requests.clear()
    assert client.answers(cache, "hub:owner/name", TEXTS) == answers(artifact_folder())
    assert hub.files_sent() == {artifacts.MANIFEST, *manifest(artifact_folder())["files"]}
    assert client.answers(cache, "hub:owner/name", TEXTS) == answers(artifact_folder())
    assert hub.requests == ["GET /api/models/owner/name/revision/main"]
    hub.requests.clear()
    assert client.answers(cache, f"hub:owner/name@{hub.commit}", TEXTS) == answers(artifact_folder())
    assert hub.requests == []
    copy = cache / "hub" / "owner--name" / hub.commit / "name"
    assert {path.name for path in copy.iterdir()} == {path.name for path in artifact_folder().iterdir()}
    assert {path.name for path in copy.parent.iterdir()} == {"name"}


def test_revision_is_the_one_that_is_named(client, hub, cache, own_artifact):
    opened = artifacts.read(own_artifact)
    hub.upload("owner/two", own_artifact, revision="v1.0")
    task = {**opened.manifest.task, "labels": ["x", "y", "z"]}
    artifacts.seal(own_artifact, dataclasses.replace(opened.manifest, task=task))
    hub.upload("owner/two", own_artifact)
    hub.upload("owner/two", own_artifact, revision="refs/pr/1")

    def labels(address):
        return {answer["label"] for answer in client.answers(cache, address, TEXTS)}

    assert labels("hub:owner/two@v1.0") <= {"bad", "fair", "good"}
    assert labels("hub:owner/two") <= {"x", "y", "z"}
    assert labels("hub:owner/two@refs/pr/1") <= {"x", "y", "z"}
    artifacts.seal(own_artifact, opened.manifest)  # the branch moves on
    hub.upload("owner/two", own_artifact)
    assert labels("hub:owner/two") <= {"bad", "fair", "good"}


def test_changed_byte_is_refused_with_the_name_of_its_file(client, hub, cache, own_artifact):
    graph = bytearray((own_artifact / GRAPH).read_bytes())
    graph[len(graph) // 2] ^= 1
    (own_artifact / GRAPH).write_bytes(graph)
    hub.upload("owner/changed", own_artifact)
    said = client.answers(cache, "hub:owner/changed", TEXTS)
    assert said.startswith(f"hub:owner/changed: The file '{GRAPH}' has changed since it was written.")
    assert not list(cache.rglob("*.onnx"))


def test_changed_manifest_is_refused_before_anything_else_is_fetched(client, hub, cache, own_artifact):
    place = own_artifact / artifacts.MANIFEST
    place.write_bytes(place.read_bytes().replace(b'"fair"', b'"fail"'))
    hub.upload("owner/manifest", own_artifact)
    hub.requests.clear()
    said = client.answers(cache, "hub:owner/manifest", TEXTS)
    assert said == ("hub:owner/manifest: The manifest has changed since it was written. Copy the whole folder again.")
    assert hub.files_sent() == {artifacts.MANIFEST}
    assert not list(cache.rglob(artifacts.MANIFEST))


def test_format_version_1_is_told_once_by_its_place_in_the_cache(client, hub, cache, own_artifact, rows):
    commit = hub.upload("owner/old", write_version_1(own_artifact))
    ran = client.tersely(cache, "predict", "hub:owner/old", rows)
    assert (ran.code, len(ran.out.splitlines())) == (0, len(TEXTS))
    copy = cache / "hub" / "owner--old" / commit / "old"
    assert ran.err.count("warning: ") == 1  # huggingface_hub shows its progress before it
    assert f"tersely: warning: {copy}: The artifact has format version 1" in ran.err


def test_copy_that_was_changed_in_the_cache_is_refused(client, cache):
    client.answers(cache, "hub:owner/name", TEXTS)
    (config,) = cache.rglob("config.json")
    config.write_text(config.read_text() + " ")
    assert "The file 'config.json' has changed" in client.answers(cache, "hub:owner/name", TEXTS)


def test_file_that_was_not_uploaded_is_named(client, hub, cache, own_artifact):
    (own_artifact / "tokenizer.json").unlink()
    hub.upload("owner/half", own_artifact)
    said = client.answers(cache, "hub:owner/half", TEXTS)
    assert said.startswith("hub:owner/half: The file 'tokenizer.json' is missing.")


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "..\\x"])
def test_manifest_that_leads_outside_is_refused(name, client, hub, cache, own_artifact, tmp_path):
    rewrite(own_artifact, files={**manifest(own_artifact)["files"], name: "0" * 64})
    files = {path.relative_to(own_artifact).as_posix(): path.read_bytes() for path in own_artifact.rglob("*.json")}
    hub.upload("owner/outside", {**files, name: b"planted"})
    hub.requests.clear()
    said = client.answers(cache, "hub:owner/outside", TEXTS)
    assert said == f"hub:owner/outside: The manifest names a path outside of the folder: {name!r}."
    assert hub.files_sent() == {artifacts.MANIFEST}
    assert {path.name for path in tmp_path.iterdir()} == {"artifact", "cache"}
    assert not list(tmp_path.rglob("x"))


def test_what_the_hub_does_not_give_is_told_in_one_line(client, hub, cache, artifact_folder, rows):
    hub.upload("owner/plain", {"config.json": b"{}"})
    hub.upload("owner/gated", artifact_folder(), gated=True)
    for address, said in {
        "hub:owner/nothing": "There is no such repository on the Hub. Check the name.",
        "hub:nothing": "There is no such repository on the Hub. Check the name.",
        "hub:owner/name@v9": "The repository has no revision 'v9'. Name a branch, a tag or a commit.",
        "hub:owner/gated": "The repository is open only to those whom its owner gave access. Ask for access",
        "hub:owner/plain": "The repository is not a Tersely artifact: it has no tersely.json.",
        "hub:owner/name/x": "This is no address on the Hub. Write hub:owner/name or hub:owner/name@revision.",
    }.items():
        ran = client.tersely(cache, "predict", address, rows)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(f"tersely: {address}: {said}")
        assert ran.err.count("\n") == 1
    assert not list(cache.rglob("tersely.json"))


def test_without_connection_the_last_known_copy_is_taken(unconnected, filled, cache, rows, artifact_folder):
    assert unconnected.answers(filled, "hub:owner/name", TEXTS) == answers(artifact_folder())
    for address in ("hub:owner/name", f"hub:owner/name@{'0' * 40}"):
        ran = unconnected.tersely(cache, "predict", address, rows)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(f"tersely: {address}: http://127.0.0.1:")
        assert "cannot be reached, and the cache has no copy. Connect, or run 'hf download owner/name " in ran.err
        assert ran.err.count("\n") == 1


def test_hub_in_trouble_is_as_one_out_of_reach_but_a_refusal_is_told(client, hub, filled, cache, artifact_folder):
    try:
        hub.status = 503
        assert client.answers(filled, "hub:owner/name", TEXTS) == answers(artifact_folder())
        assert "cannot be reached (status 503), and the cache has no" in client.answers(cache, "hub:owner/name", TEXTS)
        hub.status = 403
        assert "The Hub refused with status 403." in client.answers(filled, "hub:owner/name", TEXTS)
    finally:
        hub.status = None


@pytest.mark.slow
def test_offline_nothing_is_asked(hub, filled, cache, rows, tmp_path, client):
    hub.requests.clear()
    runs = [
        in_process(hub, place, tmp_path, "predict", "hub:owner/name", rows, "--threads", 1, HF_HUB_OFFLINE="1")
        for place in (filled, cache)
    ]
    (out, _), (nothing, err) = (run.communicate(timeout=60) for run in runs)
    assert [run.returncode for run in runs] == [0, 2]
    assert hub.requests == []
    assert out == client.tersely(filled, "predict", "hub:owner/name", rows, "--threads", "1").out
    assert nothing == ""
    said = f"{hub.address} cannot be reached (HF_HUB_OFFLINE is set), and the cache has no copy. Connect, or"
    assert err.startswith(f"tersely: hub:owner/name: {said}")
    assert err.count("\n") == 1


def test_killed_download_leaves_nothing_that_loads(hub, client, unconnected, cache, rows, tmp_path, artifact_folder):
    with hub.hold(GRAPH):
        process = in_process(hub, cache, tmp_path, "predict", "hub:owner/name", rows)
        assert hub.holding.wait(60)
        process.kill()
        process.communicate()
    assert list(cache.rglob("tersely.json"))  # it was on its way
    assert "the cache has no copy" in unconnected.answers(cache, "hub:owner/name", TEXTS)
    assert client.answers(cache, "hub:owner/name", TEXTS) == answers(artifact_folder())
    assert len(list(cache.rglob("tersely.json"))) == 1


def test_processes_that_begin_together_download_once(hub, client, cache, rows, tmp_path, artifact_folder):
    hub.requests.clear()
    loaded = []
    with hub.hold(GRAPH):
        first = in_process(hub, cache, tmp_path, "predict", "hub:owner/name", rows)
        assert hub.holding.wait(60)
        second = threading.Thread(target=lambda: loaded.append(client.answers(cache, "hub:owner/name", TEXTS)))
        second.start()
        while sum("/revision/" in request for request in hub.requests) < 2:
            time.sleep(0.01)
        second.join(0.3)
        assert second.is_alive()  # it waits for the first
    second.join(60)
    assert (first.wait(60), loaded) == (0, [answers(artifact_folder())])
    first.communicate()
    assert sum(request.startswith("GET") and request.endswith(GRAPH) for request in hub.requests) == 1


def test_cache_that_cannot_be_written_is_named(client, tmp_path):
    (tmp_path / "cache").write_text("a file")
    assert "The cache cannot be written: " in client.answers(tmp_path / "cache", "hub:owner/name", TEXTS)


@pytest.mark.slow
def test_every_command_that_takes_an_artifact_takes_an_address(client, filled, rows, tmp_path, artifact_folder):
    name, once = "hub:owner/name", ["--threads", "1", "--batch_sizes", "1", "--seconds", "0.01"]
    for words in (
        ["predict", name, rows],
        ["predict", name, rows, "--output", tmp_path / "answers.csv", "--workers", "1"],
        ["evaluate", "--model_name_or_path", name, "--against", name, "--eval_file", rows],
        ["check", name, "--engine", "onnxruntime"],
        ["tune", name, *once],
        ["benchmark", name, "--engines", "onnxruntime", "--lengths", "16", *once],
        ["export", "--model_name_or_path", name, "--openvino", "--output_dir", tmp_path / "openvino"],
    ):
        ran = client.tersely(filled, *words)
        assert ran.code == 0, (words, ran.err)
        assert "name" in ran.out or words[0] in ("predict", "tune", "export")  # called as the repository is
    assert manifest(tmp_path / "openvino")["task"] == manifest(artifact_folder())["task"]


def test_models_are_called_as_their_repositories_are(hub, filled, monkeypatch):
    """By their commit, which is in the cache: nothing is asked of the Hub."""
    monkeypatch.setenv("TERSELY_CACHE", str(filled))
    address = f"hub:owner/name@{hub.commit}"
    copy = filled / "hub" / "owner--name" / hub.commit / "name"
    assert named_folders([address, f"other={address}"]) == {"name": copy, "other": copy}
    assert local_folder(Path(address)) == str(copy)


def test_base_install_says_what_is_missing_only_when_it_is_needed(hub, filled, artifact_folder):
    code = """
import os
from tersely import UserError, runtime
os.environ["TERSELY_CACHE"], folder, commit = sys.argv[1:]
runtime.load(folder)
runtime.load(f"hub:owner/name@{commit}")
try:
    runtime.load("hub:owner/name")
except UserError as error:
    print(error)
assert "huggingface_hub" not in sys.modules
"""
    code = BLOCKED.replace("'torch'", "'torch', 'huggingface_hub'") + code
    words = [sys.executable, "-c", code, str(filled), str(artifact_folder()), hub.commit]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "'huggingface_hub' is not installed; an address that starts with 'hub:' needs it" in done.stdout


def test_huggingface_hub_is_not_imported_with_the_runtime(artifact_folder):
    code = "import sys; from tersely import runtime; runtime.load(sys.argv[1])"
    code += "; assert 'huggingface_hub' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, str(artifact_folder())], check=True)


@pytest.mark.parametrize("text", ["hub:name", "hub:owner/name", "hub:own.er/na_me-1@refs/pr/3", "hub:a/b@" + "0" * 40])
def test_addresses_are_read_and_written_alike(text):
    assert str(parse(text)) == text


def test_main_is_the_default():
    assert parse("hub:owner/name") == parse("hub:owner/name@main") == Address("owner/name", "main")


@pytest.mark.parametrize(
    "text",
    ["hub:", "hub:/name", "hub:owner/", "hub:a/b/c", "hub:a/b@", "hub:a/b@c@d", "hub:../x", "hub:a/..", "hub:a--b/c",
     "hub:a/b@../x", "hub:a/b@/x", "hub:a b", "hub:a/b\n", "hub:a/.b", "hub:http://a/b", "hub:a/b@é", "hub:a\\b"],
)  # fmt: skip
def test_malformed_addresses_are_refused_with_the_right_form(text):
    with pytest.raises(UserError, match="Write hub:owner/name or hub:owner/name@revision"):
        local_folder(text)


def test_paths_come_back_as_they_are():
    for path in ("smaller/best", Path("smaller/best"), "hubs/best", "./hub:owner/name"):
        assert local_folder(path) is path
