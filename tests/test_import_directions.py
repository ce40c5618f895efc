"""The rooms import downwards only, and what deploys imports neither torch nor transformers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def test_layers_import_downwards_only():
    done = subprocess.run(["lint-imports", "--no-cache"], capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stdout


LIGHT = (
    "tersely", "tersely.cli", "tersely.runtime", "tersely.deploy.systems", "tersely.measure.score", "tersely.data",
    "tersely.models.convert", "tersely.report", "tersely.bulk", "tersely.serve.run", "tersely.serve.workers",
)  # fmt: skip


@pytest.mark.parametrize("module", LIGHT)
def test_importing_brings_no_training_library(module):
    heavy = "{'torch', 'transformers', 'openvino', 'onnx', 'datasets', 'pandas', 'ray', 'pyarrow'}"
    code = f"import sys, {module}; found = {heavy} & set(sys.modules); assert not found, found"
    subprocess.run([sys.executable, "-c", code], check=True)
