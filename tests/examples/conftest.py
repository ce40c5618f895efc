"""Scripts of `examples/`, run as users run them but in this process, which has torch already."""

from __future__ import annotations

import io
import runpy
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from commands import Ran, Tersely

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.append(str(EXAMPLES / "uie"))  # where its scripts find what they share


@pytest.fixture(scope="module")
def run(short_timings: None) -> Tersely:
    """Run a script: its exit code, standard output and standard error."""

    def call(script: str, *words: Any) -> Ran:
        place, code = EXAMPLES / script, 0
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.syspath_prepend(str(place.parent))
            patch.setattr(sys, "argv", [str(place), *map(str, words)])
            try:
                runpy.run_path(str(place), run_name="__main__")
            except SystemExit as stop:
                code = int(stop.code or 0)
        return Ran(code, out.getvalue(), err.getvalue())

    return call
