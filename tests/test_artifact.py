"""The folder that is read is the folder that was written, or it is refused."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tiny_artifacts
from sealing import body, content, rewrite, sealed, write_version_1
from tersely import artifact as artifacts
from tersely import runtime
from tersely.artifact import FORMAT_VERSION, MANIFEST, FormatWarning, Graph, Manifest, read, seal
from tersely.errors import UserError
from tersely.tasks import SequenceClassification, from_json, to_json

GRAPH = "onnx/model.onnx"
SHARED = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "artifact"
    (folder / "onnx").mkdir(parents=True)
    (folder / GRAPH).write_bytes(b"a graph")
    (folder / "tokenizer.json").write_text("{}")
    seal(folder, manifest())
    return folder


def manifest() -> Manifest:
    return Manifest(
        task=to_json(SequenceClassification(("bad", "好"))),
        model_type="bert",
        inputs=("input_ids", "attention_mask"),
        input_dtype="int64",
        pad_token_id=0,
        graphs=(Graph(GRAPH, ("onnxruntime", "openvino"), "fp32"),),
        score={"metric": "accuracy", "value": 0.5, "interval": [0.4, 0.6], "rows": 3, "on": "rows", "engine": "x"},
        parents=("bert-base",),
        tersely_version="1",
    )


def test_manifest_comes_back_as_it_was_written(folder):
    opened = read(folder)
    expected = manifest()
    assert {**opened.manifest.__dict__, "files": {}} == expected.__dict__
    assert set(opened.manifest.files) == {GRAPH, "tokenizer.json"}
    assert opened.manifest.files[GRAPH] == artifacts.sha256(folder / GRAPH)
    assert opened.path(GRAPH) == folder / GRAPH
    assert from_json(opened.manifest.task) == SequenceClassification(("bad", "好"))
    assert artifacts.is_artifact(folder)


def test_digest_is_sha256_of_the_whole_file(tmp_path):
    import hashlib

    data = os.urandom(3_000_001)
    (tmp_path / "big").write_bytes(data)
    assert artifacts.sha256(tmp_path / "big") == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("name", [GRAPH, "tokenizer.json"])
def test_changed_byte_is_noticed(folder, name):
    data = bytearray((folder / name).read_bytes())
    data[-1] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(UserError, match=f"file '{name}' has changed"):
        read(folder)
    assert read(folder, verify=False).folder == folder


@pytest.mark.parametrize("name", [GRAPH, "tokenizer.json"])
def test_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(UserError, match=f"file '{name}' is missing"):
        read(folder)


def test_file_that_became_a_folder_is_missing(folder):
    (folder / GRAPH).unlink()
    (folder / GRAPH).mkdir()
    with pytest.raises(UserError, match="is missing"):
        read(folder)


def test_absent_folder_file_and_foreign_folder_are_told_apart(tmp_path):
    with pytest.raises(UserError, match="no such folder"):
        read(tmp_path / "absent")
    with pytest.raises(UserError, match="not a Tersely artifact"):
        read(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="not a Tersely artifact"):
        read(tmp_path / "file")


@pytest.mark.parametrize("version", [FORMAT_VERSION + 1, 0, 99])
def test_other_format_version_is_refused(folder, version):
    # A newer format may hold keys that are unknown here: the version must be what is complained of.
    rewrite(folder, format_version=version, something_new={})
    with pytest.raises(UserError, match=rf"format version {version}; this tersely reads 1 and 2\. Update tersely"):
        read(folder)
    (folder / MANIFEST).write_text(json.dumps({"format_version": version}))  # nor need its checksum be where ours is
    with pytest.raises(UserError, match=f"format version {version}; this"):
        read(folder)


@pytest.mark.parametrize("version", [None, "1", "2", True, [], 1.5, 2.0])
def test_version_that_is_none_is_refused(folder, version):
    rewrite(folder, format_version=version)
    with pytest.raises(UserError, match="format"):
        read(folder)


@pytest.mark.parametrize("name", ["../x", "/etc/hostname", "a/../../x", "..", "..\\x", "C:\\x", "onnx/../../x"])
@pytest.mark.parametrize("listed", ["files", "graphs"])
def test_path_that_leaves_the_folder_is_refused(folder, name, listed):
    (folder.parent / "x").write_text("secret")
    if listed == "files":
        rewrite(folder, files={**content(folder)["files"], name: artifacts.sha256(folder.parent / "x")})
    else:
        rewrite(folder, graphs=[{**content(folder)["graphs"][0], "path": name}])
    with pytest.raises(UserError, match="names a path outside of the folder"):
        read(folder)


@pytest.mark.parametrize("link", ["file", "folder"])
def test_link_that_leaves_the_folder_is_refused(folder, link):
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "model.onnx").write_bytes(b"a graph")
    (folder / GRAPH).unlink()
    if link == "file":
        (folder / GRAPH).symlink_to(outside / "model.onnx")
    else:
        (folder / "onnx").rmdir()
        (folder / "onnx").symlink_to(outside)
    with pytest.raises(UserError, match="outside of the folder"):
        read(folder)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a\0b", "names a path outside of the folder"),
        ("x" * 5000, "names a path outside of the folder"),
        ("\ud800", "names a path outside of the folder"),
        ("", "The file '' is missing"),
        (".", r"The file '\.' is missing"),
    ],
    ids=["zero byte", "too long", "surrogate", "empty", "the folder"],
)
def test_name_that_is_no_file_name_is_refused(folder, name, said):
    rewrite(folder, files={**content(folder)["files"], name: "0"})
    with pytest.raises(UserError, match=said):
        read(folder)


def test_link_to_itself_is_refused(folder):
    (folder / GRAPH).unlink()
    (folder / GRAPH).symlink_to(folder / GRAPH)
    with pytest.raises(UserError, match="names a path outside of the folder"):
        read(folder)


def test_artifact_may_itself_be_reached_through_a_link(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    assert read(tmp_path / "link").manifest == read(folder).manifest


def test_graph_without_checksum_is_refused(folder):
    files = content(folder)["files"]
    del files[GRAPH]
    rewrite(folder, files=files)
    with pytest.raises(UserError, match="has no checksum"):
        read(folder)


def test_file_that_the_manifest_does_not_list_is_not_given(folder):
    (folder / "added.json").write_text("{}")
    with pytest.raises(UserError, match=r"does not list the file 'added.json'"):
        read(folder).path("added.json")


def test_tokenizer_that_the_manifest_does_not_list_is_not_used(folder):
    files = content(folder)["files"]
    del files["tokenizer.json"]
    rewrite(folder, files=files)
    with pytest.raises(UserError, match=r"does not list the file 'tokenizer.json'"):
        runtime.open_encoder(read(folder))


def test_unknown_entry_is_refused_with_the_nearest(folder):
    rewrite(folder, stratgy="ptq")
    with pytest.raises(UserError, match=r"no entry 'stratgy'. Did you mean 'strategy'"):
        read(folder)


def test_every_truncation_is_refused(folder):
    content = (folder / MANIFEST).read_bytes()
    for length in range(len(content)):
        (folder / MANIFEST).write_bytes(content[:length])
        with pytest.raises(UserError, match=r"is damaged|does not end with 'manifest_sha256'"):
            read(folder)
    (folder / MANIFEST).write_bytes(content)
    assert read(folder)


def usable(folder):
    """Read and use all that a manifest says; a mistake in it may only show as a UserError."""
    opened = read(folder)
    task = from_json(opened.manifest.task)
    assert task.metrics[task.metric]
    runtime.choose(opened)
    assert all(isinstance(name, str) for name in opened.manifest.inputs)


def try_to_use(folder, changed: bytes):
    """Use a manifest of which all lines but the last two were changed, and its checksum with them."""
    before = (folder / MANIFEST).read_bytes()
    (folder / MANIFEST).write_bytes(sealed(changed))
    try:
        with contextlib.suppress(UserError):
            usable(folder)
    finally:
        (folder / MANIFEST).write_bytes(before)


def test_manifest_that_was_sealed_by_hand_can_be_used(folder):
    """Else the tests of changed ones would see nothing but refusals."""
    (folder / MANIFEST).write_bytes(sealed(body(folder)))
    usable(folder)
    (folder / MANIFEST).write_bytes(sealed(json.dumps(content(folder)).removesuffix("}").encode() + b",\n"))
    usable(folder)


@SHARED
@given(place=st.integers(0, 10_000), removed=st.integers(0, 3), added=st.binary(max_size=3))
def test_changed_bytes_of_the_manifest_never_end_in_a_traceback(folder, place, removed, added):
    content = body(folder)
    place %= len(content)
    try_to_use(folder, content[:place] + added + content[place + removed :])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def places(value, path=()):
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from places(part, (*path, key))


@SHARED
@given(data=st.data())
def test_changed_values_of_the_manifest_never_end_in_a_traceback(folder, data):
    changed = copy.deepcopy(content(folder))
    *path, last = data.draw(st.sampled_from([path for path in places(changed) if path]))
    holder = changed
    for key in path:
        holder = holder[key]
    if isinstance(holder, dict) and data.draw(st.booleans()):
        del holder[last]
    else:
        holder[last] = data.draw(VALUES)
    try_to_use(folder, json.dumps(changed).removesuffix("}").encode() + b",\n")


@given(VALUES)
@SHARED
def test_any_json_in_place_of_the_manifest_is_refused(folder, value):
    (folder / MANIFEST).write_text(json.dumps(value), encoding="utf-8")
    with pytest.raises(UserError, match="has format version None"):
        read(folder)


def test_manifest_of_endless_depth_is_refused(folder):
    (folder / MANIFEST).write_text("[" * 200_000)
    with pytest.raises(UserError, match="damaged"):
        read(folder)


def test_sealing_twice_gives_the_same_bytes(folder):
    before = (folder / MANIFEST).read_bytes()
    seal(folder, manifest())
    assert (folder / MANIFEST).read_bytes() == before
    assert "好" in before.decode()


def refused(folder: Path, changed: bytes) -> str:
    """What is said of a folder with these bytes as its manifest."""
    (folder / MANIFEST).write_bytes(changed)
    with pytest.raises(UserError) as error:
        read(folder, verify=False)
    return str(error.value)


def test_no_changed_byte_of_the_manifest_is_read(tmp_path):
    """Each byte of an artifact that runs, the checksum's too: two flips of one bit, and any other byte in its place."""
    folder = tiny_artifacts.make(tmp_path / "real")
    content, draw = (folder / MANIFEST).read_bytes(), random.Random(0)  # noqa: S311
    assert read(folder, verify=False)
    for place, byte in enumerate(content):
        for other in (*(byte ^ 1 << bit for bit in draw.sample(range(8), 2)), byte ^ draw.randrange(1, 256)):
            (folder / MANIFEST).write_bytes(content[:place] + bytes([other]) + content[place + 1 :])
            try:
                read(folder, verify=False)
            except UserError:
                continue
            pytest.fail(
                f"byte {place} read with {other} in place of {byte}: {content[max(0, place - 20) : place + 20]}"
            )


def test_no_byte_can_be_taken_from_the_manifest_or_added(folder):
    content = (folder / MANIFEST).read_bytes()
    for place in range(len(content)):
        refused(folder, content[:place] + content[place + 1 :])
        refused(folder, content[:place] + b" " + content[place:])
    refused(folder, content + b"\n")


@pytest.mark.parametrize(
    "change",
    [
        lambda content: json.dumps(json.loads(content)).encode(),
        lambda content: json.dumps(json.loads(content), indent=2, ensure_ascii=False, sort_keys=True).encode() + b"\n",
        lambda content: content.replace(b'  "strategy"', b'  "strategy": "x",\n  "strategy"'),
        lambda content: content.replace(b"\n", b"\r\n"),
        lambda content: b"\xef\xbb\xbf" + content,
        lambda content: content.replace("好".encode(), rb"\u597d"),
        lambda content: content.replace(b'"manifest_sha256"', rb'"manifest_sha25\u0036"'),
        lambda content: content[:-68] + content[-68:].upper(),
    ],
    ids=["one line", "sorted", "doubled key", "newlines", "mark", "escape", "escaped key", "capitals"],
)
def test_another_spelling_of_the_same_manifest_is_refused(folder, change):
    content = (folder / MANIFEST).read_bytes()
    changed = change(content)
    assert changed != content
    refused(folder, changed)


def test_checksum_of_the_manifest_is_what_other_tools_find(folder):
    """As the docs say: head -n -2 tersely.json | sha256sum."""
    import hashlib

    lines = (folder / MANIFEST).read_bytes().splitlines(keepends=True)
    assert json.loads(b"".join(lines))["manifest_sha256"] == hashlib.sha256(b"".join(lines[:-2])).hexdigest()
    assert (folder / MANIFEST).read_bytes() == sealed(body(folder))


def test_changed_manifest_is_told_as_changed(folder):
    content = (folder / MANIFEST).read_bytes()
    expected = f"{folder / MANIFEST}: The manifest has changed since it was written. Copy the whole folder again."
    assert refused(folder, content.replace(b'"bad"', b'"bed"')) == expected
    for version in (b"1", b"3", b"x"):
        assert refused(folder, content.replace(b'"format_version": 2', b'"format_version": ' + version)) == expected


def test_manifest_without_its_checksum_is_refused(folder):
    (folder / MANIFEST).write_text(json.dumps(content(folder), indent=2) + "\n")
    with pytest.raises(UserError, match="does not end with 'manifest_sha256', its checksum"):
        read(folder)


def test_version_1_with_a_trace_of_version_2_is_refused(folder):
    rewrite(folder, format_version=1)
    with pytest.raises(UserError, match="'manifest_sha256', which format version 1 does not have"):
        read(folder)
    (folder / MANIFEST).write_text(json.dumps({"manifest_sha256": "0" * 64, **content(folder), "format_version": 1}))
    with pytest.raises(UserError, match="'manifest_sha256', which format version 1 does not have"):
        read(folder)
    write_version_1(folder, manifest_sha256="0" * 64)
    with pytest.raises(UserError, match="has changed"):
        read(folder)
    write_version_1(folder, manifest_sha257="0" * 64)
    with pytest.raises(UserError, match="no entry 'manifest_sha257'"):
        read(folder)


def test_version_1_is_read_with_a_warning_once_a_folder(folder):
    expected = read(folder).manifest
    write_version_1(folder)
    with pytest.warns(FormatWarning, match=r"format version 1: no checksum covers its tersely\.json") as seen:
        opened, again = read(folder), read(folder, verify=False)
    assert len(seen) == 1
    assert seen[0].filename == __file__
    assert opened.manifest == again.manifest == dataclasses.replace(expected, format_version=1)
    (folder / GRAPH).write_bytes(b"another")
    with pytest.raises(UserError, match="has changed"):
        read(folder)


def test_sealing_makes_version_1_version_2(folder, recwarn):
    before = (folder / MANIFEST).read_bytes()
    write_version_1(folder)
    seal(folder, artifacts.checked_manifest(folder))
    assert (folder / MANIFEST).read_bytes() == before
    assert read(folder).manifest.format_version == FORMAT_VERSION == 2
    assert not recwarn
