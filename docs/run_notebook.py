"""Run a notebook and write it back with what it printed: `python docs/run_notebook.py docs/notebooks/quickstart.ipynb`.

What differs from run to run and tells nothing is left out: progress (standard error), times, the kernel's version.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def run(notebook: nbformat.NotebookNode, folder: Path, scratch: Path) -> None:
    """Run all cells as if the notebook lay in `folder`; an error stops it. Temporary files go to `scratch`.

    The kernel is this interpreter, and its commands are those that a shell finds first.
    """
    commands = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": commands, "TMPDIR": str(scratch)}
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"  # not the python3 of the user's home
    how = {"kernel_name": "python3", "timeout": 1800, "coalesce_streams": True}
    NotebookClient(notebook, resources={"metadata": {"path": str(folder)}}, **how).execute(env=environment)


def clean(notebook: nbformat.NotebookNode) -> None:
    """Leave the sources, what was printed and shown, and the numbers of the cells."""
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": {"name": "python"}})
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({})
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
            for output in cell.outputs:
                if "metadata" in output:
                    output.metadata = nbformat.from_dict({})


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        notebook = nbformat.read(path, as_version=4)
        with tempfile.TemporaryDirectory() as scratch:
            run(notebook, path.parent, Path(scratch))
        clean(notebook)
        nbformat.write(notebook, path)
