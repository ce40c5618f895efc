"""An artifact that goes to another machine arrives complete, and is checked there."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import tiny_artifacts
from sealing import write_version_1
from tersely import artifact as artifacts
from tersely.bulk.ray_workers import packed, unpacked
from tersely.errors import Failure, UserError

Artifact = Callable[[str], Path]


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_arrives_is_the_artifact_and_nothing_else(artifact: Artifact, tmp_path: Path) -> None:
    original = tiny_artifacts.copy(artifact("text"), tmp_path / "source")
    before = content(original)
    (original / "diary.txt").write_text("not listed in the manifest")
    place = unpacked(packed(original), tmp_path / "cache")
    assert content(place) == before
    assert [path.name for path in place.parent.iterdir()] == [place.name]  # nothing half-done beside it


def test_second_worker_takes_what_is_there_and_mends_what_is_damaged(artifact: Artifact, tmp_path: Path) -> None:
    files = packed(artifact("text"))
    place = unpacked(files, tmp_path)
    inode = place.stat().st_ino
    assert unpacked(files, tmp_path).stat().st_ino == inode
    (place / "tokenizer.json").write_text("{}")
    assert content(unpacked(files, tmp_path)) == content(artifact("text"))


def test_scratch_of_a_killed_worker_goes(artifact: Artifact, tmp_path: Path) -> None:
    files = packed(artifact("text"))
    place = unpacked(files, tmp_path)
    left = place.with_name(f".{place.name}.killed.part")
    place.rename(left)
    assert unpacked(files, tmp_path) == place
    assert list(place.parent.iterdir()) == [place]


def test_workers_that_begin_together_unpack_once(artifact: Artifact, tmp_path: Path) -> None:
    files = packed(artifact("text"))
    with ThreadPoolExecutor(8) as threads:
        found = list(
            threads.map(lambda _: (unpacked(files, tmp_path), unpacked(files, tmp_path).stat().st_ino), range(8))
        )
    assert len(set(found)) == 1
    assert content(found[0][0]) == content(artifact("text"))


def test_bytes_that_changed_on_the_way_are_refused(artifact: Artifact, tmp_path: Path) -> None:
    files = {**packed(artifact("text")), "tokenizer.json": b"{}"}
    with pytest.raises(UserError, match=r"'tokenizer\.json' has changed"):
        unpacked(files, tmp_path)
    assert not list((tmp_path / "artifacts").iterdir())


def test_manifest_that_changed_on_the_way_is_refused(artifact: Artifact, tmp_path: Path) -> None:
    files = packed(artifact("text"))
    changed = files[artifacts.MANIFEST].replace(b'"fair"', b'"fail"')
    with pytest.raises(UserError, match="manifest has changed"):
        unpacked({**files, artifacts.MANIFEST: changed}, tmp_path)
    assert not list((tmp_path / "artifacts").iterdir())


def test_format_version_1_arrives_without_a_word_about_scratch(artifact: Artifact, tmp_path: Path) -> None:
    original = write_version_1(tiny_artifacts.copy(artifact("text"), tmp_path / "source"))
    with pytest.warns(artifacts.FormatWarning) as seen:
        place = unpacked(packed(original), tmp_path / "cache")
    assert [str(original) in str(warning.message) for warning in seen] == [True]
    assert content(place) == content(original)


def test_path_that_leaves_the_folder_is_refused(artifact: Artifact, tmp_path: Path) -> None:
    files = {artifacts.MANIFEST: b"{}", "../../escaped.txt": b"x"}
    with pytest.raises(UserError, match="outside of the folder"):
        unpacked(files, tmp_path / "cache")
    assert not list(tmp_path.rglob("escaped.txt"))


def test_cache_that_cannot_be_written_is_named(artifact: Artifact, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Failure, match=r"TERSELY_CACHE"):
        unpacked(packed(artifact("text")), tmp_path / "file")
