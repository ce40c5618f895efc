"""What `import tersely` shows: typed for editors, listed by `dir`, documented, and nothing else."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tersely
from tersely.options.data import DataOptions
from tersely.progress import SILENT, Plain, Terminal, shown
from tersely.tasks import Columns
from tersely.tasks.options import TaskOptions

PUBLIC = {
    "compress", "finetune", "export", "evaluate", "benchmark", "runtime", "load_model", "Trainer",
    "CompressionArguments", "PdArgumentParser", "CompressionResult", "Progress", "UserError",
}  # fmt: skip
FUNCTIONS = ("finetune", "export", "evaluate", "benchmark")


def test_all_dir_types_and_homes_name_the_same():
    assert set(tersely.__all__) == set(dir(tersely)) == PUBLIC | {"__version__"}
    assert set(tersely._HOMES) == PUBLIC
    shown = {}
    for node in ast.walk(ast.parse(Path(tersely.__file__).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            shown |= {name.name: f".{node.module or name.name}" for name in node.names}
    assert shown == tersely._HOMES


def test_no_module_has_the_name_of_a_public_function():
    """`import tersely.compress` would put the module in the function's place."""
    folder = Path(tersely.__file__).parent
    modules = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert modules & PUBLIC == {"runtime"}


def test_unknown_names_are_no_attributes():
    with pytest.raises(AttributeError, match="has no attribute 'OFA'"):
        _ = tersely.OFA


@pytest.mark.parametrize("name", FUNCTIONS)
def test_options_have_the_names_types_and_defaults_of_their_declaration(name):
    found = inspect.signature(getattr(tersely, name)).parameters
    declared = {field.name: field for field in dataclasses.fields(TaskOptions)}
    declared |= {field.name: field for field in dataclasses.fields(DataOptions) if field.name.endswith("_column")}
    assert {f"{field.name}_column" for field in dataclasses.fields(Columns)} <= set(declared)
    for option, field in declared.items():
        assert found[option].default == field.default, option
        if option != "answer_language":  # a closed choice, which editors show
            assert found[option].annotation == field.type, option
    assert all(parameter.kind is not inspect.Parameter.VAR_KEYWORD for parameter in found.values())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_parameter_is_documented(name):
    function = getattr(tersely, name)
    text = inspect.getdoc(function)
    for part in ("Args:", "Returns:", "Raises:", "Example:"):
        assert f"\n{part}\n" in text
    described = re.findall(r"^    (\w+): ", text[text.index("Args:") : text.index("Returns:")], re.MULTILINE)
    assert described == list(inspect.signature(function).parameters)


def test_importing_costs_nothing_and_names_come_when_they_are_used():
    code = (
        "import sys, tersely\n"
        "heavy = {'numpy', 'torch', 'transformers', 'rich', 'onnxruntime'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "tersely.Progress, tersely.UserError, tersely.evaluate, tersely.benchmark, tersely.export\n"
        "assert not {'torch', 'transformers', 'rich'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_shows_on_a_terminal_by_default_and_false_is_silent(monkeypatch):
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert shown(None) is SILENT
    assert shown(False) is SILENT
    assert isinstance(shown(True), Plain)
    monkeypatch.setattr("sys.stderr", Screen())
    assert isinstance(shown(None), Terminal)
    assert isinstance(shown(True), Terminal)
    assert shown(False) is SILENT
    own = Plain()
    assert shown(own) is own
