"""Coverage that looks away sees everything before and after, in the functions outside too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

WATCHED = """from unwatched import unwatched
def hidden():
    return 1
def seen():
    return 2
def inside():
    with unwatched():
        hidden()
def outside():
    inside()
    found = seen()
    return found
"""
CODE = """import json, coverage
watcher = coverage.Coverage(source=["watched"], data_file=None)
watcher.start()
import sys, watched
traced = sys.gettrace() is not None
watched.outside()
watcher.stop()
print(json.dumps([traced, sorted(watcher.get_data().lines(watched.__file__))]))
"""


def test_lines_before_and_after_are_seen_and_those_between_are_not(tmp_path: Path) -> None:
    (tmp_path / "watched.py").write_text(WATCHED)
    paths = os.pathsep.join([str(tmp_path), str(Path(__file__).parent / "support")])
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths}, check=True,
    )  # fmt: skip
    traced, lines = json.loads(done.stdout)
    assert set(lines) == {*range(1, 13)} - ({3, 8} if traced else set())
