"""Files and folders appear whole or not at all, and other people's files stay."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from folders import names, tree
from tersely.atomic import atomic_file, atomic_folder, check_destination, lock
from tersely.errors import Failure, UserError


def write(folder: Path, **files: str) -> None:
    """Write a folder as Tersely does: with a list of what belongs to it."""
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "tersely.json").write_text(json.dumps({"files": dict.fromkeys(files, "sha")}))


def make(destination: Path, **files: str) -> Path:
    with atomic_folder(destination) as scratch:
        write(scratch, **files)
    return destination


def test_folder_appears_when_the_block_ends(tmp_path):
    destination = tmp_path / "deep" / "er" / "out"
    with atomic_folder(destination) as scratch:
        (scratch / "a").write_text("1")
        (scratch / "sub").mkdir()
        (scratch / "sub" / "b").write_text("2")
        assert not destination.exists()
    assert tree(destination) == {"a": "1", "sub/b": "2"}
    assert names(destination.parent) == ["out"]
    assert destination.stat().st_mode & 0o777 == 0o755


def run(destination: Path, block: Callable[[Path], object], overwrite: bool = False) -> None:
    with atomic_folder(destination, overwrite=overwrite) as scratch:
        block(scratch)


def stop_with(error: BaseException) -> Callable[[Path], None]:
    def block(scratch: Path) -> None:
        write(scratch, a="new")
        raise error

    return block


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, UserError, MemoryError])
def test_exception_in_the_block_leaves_nothing(tmp_path, error):
    with pytest.raises(error):
        run(tmp_path / "out", stop_with(error("stop")))
    assert names(tmp_path) == []


def test_exception_in_the_block_leaves_what_was_there_before(tmp_path):
    out = make(tmp_path / "out", a="old")
    with pytest.raises(ValueError, match="stop"):
        run(out, stop_with(ValueError("stop")), overwrite=True)
    assert tree(out)["a"] == "old"
    assert names(tmp_path) == ["out"]


def test_full_disk_is_a_failure_that_leaves_nothing(tmp_path):
    with pytest.raises(Failure, match="Writing failed: No space left on device"):
        run(tmp_path / "out", stop_with(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
    assert names(tmp_path) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_device_that_is_full_is_a_failure_that_leaves_nothing(tmp_path):
    with pytest.raises(Failure, match="No space left"):
        run(tmp_path / "out", lambda scratch: (write(scratch, a="1"), Path("/dev/full").write_text("x")))
    assert names(tmp_path) == []


def test_full_folder_is_refused_unless_told_to_overwrite(tmp_path):
    out = make(tmp_path / "out", a="old")
    with pytest.raises(UserError, match=r"exists and is not empty.*overwrite"):
        check_destination(out, overwrite=False)
    with pytest.raises(UserError, match="not empty"), atomic_folder(out):
        pytest.fail("must not begin")
    assert tree(out)["a"] == "old"


def test_empty_folder_is_taken(tmp_path):
    (tmp_path / "out").mkdir()
    make(tmp_path / "out", a="1")
    assert tree(tmp_path / "out")["a"] == "1"


def test_overwriting_replaces_the_whole_folder(tmp_path):
    out = make(tmp_path / "out", a="old", b="gone")
    with atomic_folder(out, overwrite=True) as scratch:
        write(scratch, a="new")
        assert tree(out)["b"] == "gone"
    assert set(tree(out)) == {"a", "tersely.json"}
    assert tree(out)["a"] == "new"
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize(
    "damage", ["no list", "broken list", "list of nothing", "added", "added below", "link", "dead link"]
)
def test_foreign_files_are_refused_and_untouched(tmp_path, damage):
    out = make(tmp_path / "out", a="old")
    if damage == "no list":
        (out / "tersely.json").unlink()
    elif damage == "broken list":
        (out / "tersely.json").write_text('{"files": ')
    elif damage == "list of nothing":
        (out / "tersely.json").write_text('{"files": 3}')
    elif damage == "added":
        (out / "thesis.txt").write_text("mine")
    elif damage == "added below":
        (out / "sub").mkdir()
        (out / "sub" / "thesis.txt").write_text("mine")
    else:
        (out / "link").symlink_to(tmp_path if damage == "link" else tmp_path / "absent")
    before = tree(out)
    with pytest.raises(UserError, match="files that Tersely did not write"), atomic_folder(out, overwrite=True):
        pytest.fail("must not begin")
    assert tree(out) == before


def test_training_notes_vouch_for_their_files_too(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "model.safetensors").write_text("w")
    with pytest.raises(UserError, match="files that Tersely did not write"):
        check_destination(out, overwrite=True)
    (out / "tersely_task.json").write_text('{"files": ["model.safetensors"]}')
    check_destination(out, overwrite=True)


def test_destination_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "out").write_text("mine")
    for place in (tmp_path / "out", tmp_path / "out" / "deeper", tmp_path / "out" / "deep" / "er"):
        with pytest.raises(UserError, match=r"is a file|cannot be written"), atomic_folder(place, overwrite=True):
            pytest.fail("must not begin")
    assert (tmp_path / "out").read_text() == "mine"


def test_parent_that_is_an_executable_file_is_refused(tmp_path):
    (tmp_path / "tool").write_text("mine")
    (tmp_path / "tool").chmod(0o755)
    with pytest.raises(UserError, match="cannot be written"):
        check_destination(tmp_path / "tool" / "out", overwrite=False)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_parent_that_may_not_be_written_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(UserError, match="cannot be written"):
            check_destination(tmp_path / "out", overwrite=False)
    finally:
        tmp_path.chmod(0o700)


def test_name_that_is_too_long_is_refused(tmp_path):
    with pytest.raises(UserError, match="cannot be written"):
        check_destination(tmp_path / ("x" * 300), overwrite=False)


def test_link_to_a_folder_is_followed(tmp_path):
    real = make(tmp_path / "disk" / "real", a="old")
    (tmp_path / "link").symlink_to(real)
    with atomic_folder(tmp_path / "link", overwrite=True) as scratch:
        write(scratch, a="new")
    assert (tmp_path / "link").is_symlink()
    assert tree(real)["a"] == "new"
    assert names(tmp_path) == ["disk", "link"]
    assert names(tmp_path / "disk") == ["real"]


def test_leftovers_of_a_killed_run_are_removed_and_only_those(tmp_path):
    code = """
import os, sys
from tersely.atomic import atomic_folder
with atomic_folder(sys.argv[1]) as scratch:
    (scratch / "half").write_text("x")
    os._exit(9)
"""
    for name in ("out", "out.b", "out[1]"):
        assert subprocess.run([sys.executable, "-c", code, str(tmp_path / name)]).returncode == 9
    (tmp_path / ".out.mine").mkdir()
    left = set(names(tmp_path))
    assert len(left) == 4
    assert all(name.startswith(".") for name in left)
    make(tmp_path / "out", a="1")
    now = set(names(tmp_path))
    assert [name for name in left - now if not name.startswith(".out.b.")] == list(left - now) != []
    assert {name for name in left if name.startswith((".out.b.", ".out[1]"))} | {".out.mine", "out"} == now
    make(tmp_path / "out[1]", a="1")
    assert not any(name.startswith(".out[1]") for name in names(tmp_path))


def test_failed_rename_puts_the_old_folder_back(tmp_path):
    out = make(tmp_path / "out", a="old")
    with pytest.raises(Failure, match="Writing failed"):
        run(out, shutil.rmtree, overwrite=True)  # a scratch folder that is gone cannot be renamed
    assert tree(out)["a"] == "old"
    assert names(tmp_path) == ["out"]


def test_rename_that_fails_after_the_old_folder_stepped_aside_puts_it_back(tmp_path):
    from tersely.atomic import _replace

    out = make(tmp_path / "out", a="old")
    with pytest.raises(OSError, match="No such file"):
        _replace(tmp_path / ".out.gone.part", out)
    assert tree(out)["a"] == "old"
    assert names(tmp_path) == ["out"]


def test_old_result_comes_back_after_a_kill_between_the_two_renames(tmp_path):
    aside = tmp_path / ".out.abc.old.part"
    aside.mkdir()
    (aside / "tersely.json").write_text('{"files": {}}')
    (tmp_path / ".out.abc.part").mkdir()
    with pytest.raises(UserError, match="exists and is not empty"):
        check_destination(tmp_path / "out", overwrite=False)
    assert (tmp_path / "out" / "tersely.json").is_file()
    assert not aside.exists()


def test_folder_that_another_run_is_writing_is_left_alone(tmp_path):
    with atomic_folder(tmp_path / "out") as scratch:
        write(scratch, a="first")
        with pytest.raises(UserError, match=r"Another run is writing.*Wait for it, or choose another output_dir"):
            make(tmp_path / "out", a="second")
        assert tree(scratch)["a"] == "first"
        make(tmp_path / "out.b", a="beside")
    assert tree(tmp_path / "out")["a"] == "first"
    assert names(tmp_path) == ["out", "out.b"]


def test_what_is_locked_cannot_be_locked_again_until_it_is_let_go(tmp_path):
    for path in (tmp_path, tmp_path / "file"):
        path.exists() or path.write_text("x")
        first = lock(path)
        assert first is not None
        assert lock(path) is None
        os.close(first)
        again = lock(path)
        assert again is not None
        os.close(again)


def test_file_appears_when_the_block_ends_and_keeps_its_content_when_it_fails(tmp_path):
    place = tmp_path / "file"
    with atomic_file(place) as stream:
        stream.write(b"old")
        assert not place.exists()
    assert place.read_bytes() == b"old"
    with pytest.raises(TypeError), atomic_file(place) as stream:
        stream.writelines([b"half of it", "which is no bytes"])  # type: ignore[list-item]
    assert place.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]
