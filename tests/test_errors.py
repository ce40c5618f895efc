"""What a `UserError` has to tell other code it tells as fields: nobody reads its text."""

from __future__ import annotations

import ast
import copy
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tersely
from tersely.errors import UserError, wrong_option
from tersely.options.compress import CompressOptions
from tersely.options.yaml import Config, FileOption
from tersely.tasks import InputError, Own, QuestionAnswering, SequenceClassification, Task, TokenClassification
from tersely.tasks.options import TaskOptions

PACKAGE = Path(tersely.__file__).parent
FILES = {
    file.relative_to(PACKAGE).as_posix(): ast.parse(file.read_text(encoding="utf-8")) for file in PACKAGE.rglob("*.py")
}
WITHOUT_FILES = ("bulk/", "serve/", "cli/benchmark.py", "cli/predict.py", "cli/serve.py")
"""Modules that take no configuration file: their errors have no place in a file to name."""


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in ("what", "hint") and isinstance(node.ctx, ast.Load)


def readers(tree: ast.AST) -> Iterator[int]:
    """Lines that look into an error's text: a method of it, a comparison with it, a pattern on it."""
    for node in ast.walk(tree):
        parts: list[ast.AST] = []
        if isinstance(node, ast.Attribute):
            parts = [node.value]
        elif isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of_re = isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
            parts = list(node.args) if of_re else []
        if any(map(is_text, parts)):
            yield node.lineno


def test_no_code_reads_an_errors_text() -> None:
    reading = ['error.what.startswith("x")', '"x" in error.what', 're.match("x", error.hint)', "print(error.what)"]
    assert [line for line, code in enumerate(reading) for _ in readers(ast.parse(code))] == [0, 1, 2]
    assert len(FILES) > 100
    assert [(name, line) for name, tree in FILES.items() for line in readers(tree)] == []


def unnamed(tree: ast.AST) -> Iterator[int]:
    """Lines that raise an error whose text names an option which its fields do not."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        named = {
            target.id: node.value
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name) and re.search(r"'--[\w{]", ast.unparse(node.value).replace("\\'", "'"))
        }
        for node in ast.walk(function):
            if not (isinstance(node, ast.Call) and ast.unparse(node.func) in ("UserError", "Failure") and node.args):
                continue
            text = ast.unparse(node.args[0])
            is_named = text in named or re.search(r"'--[\w{]", text.replace("\\'", "'"))
            if is_named and "option" not in {keyword.arg for keyword in node.keywords}:
                yield node.lineno


def test_errors_that_name_an_option_carry_its_name() -> None:
    raised = ["""raise UserError("Use '--x'.")""", """raise UserError("Use '--x'.", option="x")"""]
    raised += ["""text = f"Use '--{name}'."\n raise Failure(text)""", """raise UserError("Use x.")"""]
    assert [n for n, code in enumerate(raised) for _ in unnamed(ast.parse(f"def f():\n {code}"))] == [0, 2]
    trees = {name: tree for name, tree in FILES.items() if not name.startswith(WITHOUT_FILES)}
    assert [(name, line) for name, tree in trees.items() for line in unnamed(tree)] == []


@pytest.mark.parametrize(
    ("kind", "options", "option"),
    [
        (CompressOptions, {"algo_list": "msse"}, "algo_list"),
        (CompressOptions, {"smooth": 3}, "smooth"),
        (CompressOptions, {"distill_hidden": 0, "distill_logits": 0}, "distill_hidden"),
        (CompressOptions, {"skip_layers": ["auto", "*"]}, "skip_layers"),
        (TaskOptions, {"task": "poetry"}, "task"),
        (TaskOptions, {"doc_stride": -1}, "doc_stride"),
    ],
)
def test_a_file_is_blamed_for_the_option_that_it_set(kind: type, options: dict[str, object], option: str) -> None:
    settings = {name: FileOption(name, ("x",), f"a.yml:7, {name}", name) for name in (option, "seed")}
    with pytest.raises(UserError) as caught, Config("a.yml", settings).blamed():
        kind(**options)
    assert str(caught.value).startswith(f"a.yml:7, {option}: ")
    with pytest.raises(UserError) as caught, Config("a.yml", {"seed": settings["seed"]}).blamed():
        kind(**options)
    assert caught.value.where is None
    with pytest.raises(UserError, match=r"b\.yml:1"), Config("a.yml", settings).blamed():
        raise wrong_option(option, "is known already.", where="b.yml:1")


TAKERS: list[tuple[Task, object, str]] = [
    (SequenceClassification(("no", "yes")), 3, "must be a text, a pair of texts"),
    (TokenClassification(("O", "B-LOC")), 3, "must be a text or a list of words. Got int."),
    (QuestionAnswering(), "who?", "must be a (question, context) pair of texts. Got str."),
    (Own("Mine", ("input_ids",), ("logits",)), "fine", "must be a mapping with 'input_ids' and the like. Got str."),
]


@pytest.mark.parametrize(("task", "wrong", "problem"), TAKERS, ids=lambda value: getattr(value, "name", ""))
def test_inputs_that_a_task_does_not_take_are_told_by_number_and_problem(
    task: Task, wrong: object, problem: str
) -> None:
    with pytest.raises(InputError) as caught:
        task.examples([wrong])
    error = caught.value
    assert (error.index, error.problem[: len(problem)]) == (0, problem)
    assert error.what == f"Input 0 {error.problem}"
    for same in (copy.copy(error), pickle.loads(pickle.dumps(error))):  # noqa: S301
        assert (str(same), same.index, same.problem, same.hint) == (str(error), 0, error.problem, error.hint)
