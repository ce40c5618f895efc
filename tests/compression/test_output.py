"""The output folder: complete or not there, also when killed between any two steps; what others wrote stays."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from folders import names, tree
from tersely.artifact import Graph, Manifest, read, seal
from tersely.compression.output import PARTS, RESULT, WORK, OutputFolder
from tersely.errors import Failure, UserError

BARE = sorted(set(PARTS) - {"torch"})
"""What a run writes that prunes nothing."""


def artifact(folder: Path, text: str) -> None:
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_text(text)
    seal(folder, Manifest({}, "bert", (), "int64", 0, (Graph("model.onnx", (), "int8"),)))


def torch_model(folder: Path, text: str) -> None:
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_text(text)
    (folder / "tersely_task.json").write_text(json.dumps({"files": ["model.safetensors"]}))


def fill(output: OutputFolder, text: str, pruned: bool = False) -> dict[str, Any]:
    if pruned:
        torch_model(output.scratch / "torch" / text, text)
    artifact(output.scratch / "candidates" / text, text)
    artifact(output.scratch / "best", text)
    return {"tersely_version": "0", "best": text, "candidates": []}


def run(
    place: Path,
    text: str = "new",
    *,
    overwrite: bool = False,
    stop: BaseException | None = None,
    damaged: bool = False,
    pruned: bool = False,
) -> Path:
    """A complete run, or one that stops before publication or, damaged, in the midst of it."""
    with OutputFolder(place, overwrite=overwrite) as output:
        content = fill(output, text, pruned)
        if stop is not None:
            raise stop
        if damaged:
            shutil.rmtree(output.scratch / "best")  # its rename fails after the candidates' has been done
        output.publish(content, reports(text))
    return place


def reports(text: str) -> dict[str, str]:
    """Small reports with the marks by which tersely recognizes its own."""
    head = '<meta name="generator" content="tersely report">'
    return {"report.html": f"{head}{text}", "report.md": f"<!-- tersely report -->{text}"}


def is_complete(place: Path, text: str) -> bool:
    read(place / "best")
    read(place / "candidates" / text)
    found = json.loads((place / RESULT).read_text())["best"]
    assert {name: (place / name).read_text() for name in reports(text)} == reports(text)
    return names(place / "candidates") == [text] and (place / "best" / "model.onnx").read_text() == text == found


def test_parts_appear_and_nothing_else(tmp_path: Path) -> None:
    place = run(tmp_path / "deep" / "out")
    assert names(place) == BARE
    assert is_complete(place, "new")


def test_other_files_are_untouched_and_the_folder_may_be_the_present_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("precious")
    (tmp_path / ".hidden").write_text("too")
    monkeypatch.chdir(tmp_path)
    run(Path())
    run(Path("./"), "newer", overwrite=True)
    assert is_complete(tmp_path, "newer")
    assert names(tmp_path) == sorted([*BARE, "mine", ".hidden"])
    assert (tmp_path / "mine" / "notes.txt").read_text() == "precious"


def test_finished_run_is_refused_unless_told_to_overwrite(tmp_path: Path) -> None:
    place = run(tmp_path / "out", "old")
    with pytest.raises(UserError, match=r"holds a finished run.*overwrite"):
        OutputFolder(place)
    assert is_complete(place, "old")
    run(place, "new", overwrite=True)
    assert is_complete(place, "new")
    assert names(place) == BARE


def add_file(place: Path, name: str) -> None:
    (place / name).parent.mkdir(parents=True, exist_ok=True)
    (place / name).write_text("{}" if name.endswith("json") else "mine")


FOREIGN: dict[str, Callable[[Path], None]] = {
    "file in best": lambda place: add_file(place, "best/notes.txt"),
    "file in a candidate": lambda place: add_file(place, "candidates/old/notes.txt"),
    "file among candidates": lambda place: add_file(place, "candidates/notes.txt"),
    "folder among candidates": lambda place: add_file(place, "candidates/mine/notes.txt"),
    "another result": lambda place: add_file(place, RESULT),
    "a result that is no json": lambda place: (place / RESULT).write_text("42 %") and None,
    "damaged manifest": lambda place: add_file(place, "best/tersely.json"),
    "best is a file": lambda place: (shutil.rmtree(place / "best"), add_file(place, "best"))[0],
    "best is another folder": lambda place: (shutil.rmtree(place / "best"), add_file(place, "best/notes.txt"))[0],
    "file in a pruned model": lambda place: add_file(place, "torch/old/notes.txt"),
    "folder among pruned models": lambda place: add_file(place, "torch/mine/notes.txt"),
    "file among pruned models": lambda place: add_file(place, "torch/notes.txt"),
    "page of another": lambda place: add_file(place, "report.html"),
    "text of another": lambda place: add_file(place, "report.md"),
    "torch is a file": lambda place: (shutil.rmtree(place / "torch"), add_file(place, "torch"))[0],
    "link in best": lambda place: (place / "best" / "link").symlink_to(place),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_what_others_wrote_is_refused_even_when_told_to_overwrite(case: str, tmp_path: Path) -> None:
    place = run(tmp_path / "out", "old", pruned=True)
    FOREIGN[case](place)
    before = tree(place)
    with pytest.raises(UserError, match="did not write"):
        OutputFolder(place, overwrite=True)
    assert tree(place) == before


def test_artifact_of_another_command_is_not_replaced_unasked(tmp_path: Path) -> None:
    artifact(tmp_path / "best", "exported by hand")
    with pytest.raises(UserError, match="holds 'best' already"):
        OutputFolder(tmp_path)
    run(tmp_path, overwrite=True)
    assert is_complete(tmp_path, "new")


@pytest.mark.parametrize(
    ("where", "said"),
    [("file", "is a file"), ("file/out", "cannot be written"), ("n" * 300, "File name too long")],
    ids=["a file", "under a file", "too long"],
)
def test_place_that_cannot_be_is_refused(where: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match=said):
        OutputFolder(tmp_path / where)
    assert tree(tmp_path) == {"file": "mine"}


def test_failed_run_leaves_nothing_not_even_folders(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        run(tmp_path / "a" / "b" / "c", stop=ZeroDivisionError())
    assert names(tmp_path) == []
    (tmp_path / "a").mkdir()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "a" / "b", stop=KeyboardInterrupt())
    assert tree(tmp_path) == {}
    assert names(tmp_path) == ["a"]


def test_failed_overwrite_keeps_the_old_result(tmp_path: Path) -> None:
    place = run(tmp_path / "out", "old")
    with pytest.raises(ZeroDivisionError):
        run(place, overwrite=True, stop=ZeroDivisionError())
    assert is_complete(place, "old")
    with pytest.raises(Failure, match="Writing failed"):
        run(place, overwrite=True, damaged=True)
    assert is_complete(place, "old")
    assert names(place) == BARE


def killed_at(step: int, place: Path, **options: Any) -> bool:
    """Publish in a child that is killed before its n-th rename; False if it had fewer."""
    child = os.fork()
    if child == 0:
        real, count = Path.rename, 0

        def rename(self: Path, target: Path) -> Path:
            nonlocal count
            count += 1
            if count > step:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(self, target)

        Path.rename = rename  # type: ignore[method-assign, assignment]
        try:
            run(place, "new", **options)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize("there", [False, True], ids=["first run", "overwriting"])
def test_killed_between_any_two_renames_leaves_the_old_run_or_none(there: bool, tmp_path: Path) -> None:
    steps = 0
    while True:
        place = tmp_path / f"{steps}"
        if there:
            run(place, "old")
        if not killed_at(steps, place, overwrite=there):
            break
        OutputFolder(place, overwrite=there)  # what the next start does first
        if there:
            assert is_complete(place, "old")
            assert names(place) == BARE
        else:
            assert names(place) == []
        run(place, "newer", overwrite=there)
        assert is_complete(place, "newer")
        steps += 1
    assert steps == (10 if there else 5)
    assert is_complete(place, "new")


@pytest.mark.parametrize("old", [False, True], ids=["over plain", "over pruned"])
@pytest.mark.parametrize("new", [False, True], ids=["plain", "pruned"])
def test_killed_run_brings_back_pruned_models_and_leaves_none_of_its_own(old: bool, new: bool, tmp_path: Path) -> None:
    steps = 0
    while True:
        place = run(tmp_path / f"{steps}", "old", pruned=old)
        before = tree(place)
        if not killed_at(steps, place, overwrite=True, pruned=new):
            break
        OutputFolder(place, overwrite=True)
        assert tree(place) == before
        steps += 1
    assert steps == 10 + old + new
    assert is_complete(place, "new")
    assert names(place) == (sorted(PARTS) if new else BARE)
    assert not new or names(place / "torch") == ["new"]


def test_training_is_kept_until_a_result_is_there(tmp_path: Path) -> None:
    checkpoint = tmp_path / "out" / WORK / "widths" / "checkpoint"
    for stop in (ZeroDivisionError(), KeyboardInterrupt(), FULL):
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        checkpoint.write_text("hours")
        with pytest.raises((type(stop), UserError)) as caught, OutputFolder(tmp_path / "out"):
            raise stop
        assert tree(tmp_path / "out") == {f"{WORK}/widths/checkpoint": "hours"}
    assert "What was trained is kept: make room and run it again" in str(caught.value)
    run(tmp_path / "out")
    assert names(tmp_path / "out") == BARE


def test_killed_while_undoing_is_undone_the_next_time(tmp_path: Path) -> None:
    for second in range(10):
        place = run(tmp_path / f"{second}", "old")
        assert killed_at(9, place, overwrite=True)  # new folders in place, old ones aside, no result
        killed_at(second, place, overwrite=True)  # the first renames of this one undo
        OutputFolder(place, overwrite=True)
        assert is_complete(place, "old") or is_complete(place, "new")
        assert names(place) == BARE


def test_two_runs_do_not_write_to_one_folder(tmp_path: Path) -> None:
    with OutputFolder(tmp_path) as first:
        fill(first, "new")
        with pytest.raises(UserError, match=r"Another run is writing.*Wait for it, or choose another"):
            OutputFolder(tmp_path, overwrite=True)
        first.publish({"tersely_version": "0", "best": "new", "candidates": []}, reports("new"))
    assert is_complete(tmp_path, "new")


def wrapped(error: Exception, by: Exception) -> Exception:
    by.__cause__ = error
    return by


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
ERRORS = {
    "full disk": (FULL, UserError, "Writing failed: No space left on device. Nothing was left behind."),
    "limit on files": (OSError(errno.EFBIG, "File too large"), UserError, "Writing failed: File too large"),
    "behind a zip file's": (wrapped(FULL, ValueError("open handle")), UserError, "No space left on device"),
    "behind a failure": (wrapped(FULL, Failure("Writing failed.")), UserError, "No space left on device"),
    "read-only, elsewhere": (OSError(errno.EROFS, "Read-only", "/elsewhere/x"), UserError, "/elsewhere/x: Writing"),
    "a file that is gone": (FileNotFoundError(2, "No such file"), Failure, "Writing failed: No such file"),
    "said already": (wrapped(FULL, UserError("The graph is damaged.")), UserError, "The graph is damaged."),
    "a bug": (KeyError("x"), KeyError, "x"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_of_the_disk_are_told_and_others_pass(case: str, tmp_path: Path) -> None:
    error, kind, said = ERRORS[case]
    with pytest.raises(kind, match=said) as caught, OutputFolder(tmp_path / "out"):
        raise error
    assert type(caught.value) is kind
    assert names(tmp_path) == []


def test_disk_without_room_is_refused(tmp_path: Path) -> None:
    output = OutputFolder(tmp_path / "out")
    output.expect_room(1000)
    with pytest.raises(UserError, match=r"too full: the run needs at least \d+ MB"):
        output.expect_room(10**18)
    assert names(tmp_path) == []


def test_folder_that_cannot_be_made_is_a_users_error(tmp_path: Path) -> None:
    output = OutputFolder(tmp_path / "a" / "out")
    (tmp_path / "a").write_text("came in between")
    with pytest.raises(UserError, match="cannot be written"), output:
        pytest.fail("must not begin")
    assert tree(tmp_path) == {"a": "came in between"}
