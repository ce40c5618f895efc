"""Memory does not grow with the file."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bulk_rows import records

CODE = """
import sys
from pathlib import Path
from tersely.cli import main
code = main(sys.argv[1:])
peak = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
print(peak[0].split()[1])
raise SystemExit(code)
"""
NOTE = "a column that nobody asked for " * 70


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells the peak of one program's own memory")
def test_memory_is_flat_over_a_file_twenty_times_larger(artifact: Callable[[str], Path], tmp_path: Path) -> None:
    """The larger file has 66 MB, and would take more than that as rows in memory."""
    peaks = []
    for times in (1, 20):
        file = tmp_path / f"{times}.jsonl"
        file.write_text("".join(json.dumps({**row, "note": NOTE}) + "\n" for row in records("text", 1500)) * times)
        words = ["predict", artifact("text"), file, "--output", tmp_path / f"{times}.csv", "--engine", "onnxruntime"]
        command = [sys.executable, "-c", CODE, *map(str, words), "--threads", "1"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        peaks.append(int(done.stdout) / 1024)
        assert len((tmp_path / f"{times}.csv").read_text().splitlines()) == 1500 * times + 1
    assert peaks[1] < peaks[0] + 20, peaks
