"""docs/reference/python.md: every public name with its signature, docstring and example."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from tersely.compression.choice import Measured
from tersely.compression.result import CompressionResult
from tersely.deploy.benchmark import Benchmark, LoadingCost
from tersely.deploy.evaluate import Evaluation
from tersely.deploy.export import Exported
from tersely.measure.benchmark import Cell, Timing
from tersely.measure.score import Answers, Comparison, Score
from tersely.progress import SILENT
from tersely.tasks.own import OwnOutputs
from tersely.tasks.question_answering import Answered
from tersely.tasks.sequence_classification import Classified
from tersely.tasks.token_classification import Entity, Tagged
from tersely.training.finetune import Finetuned

HEAD = """# Python

Made from the code by `make docs`. `import tersely` costs nothing: each name is imported when it is first used, and what
[deploys](#terselyruntime) brings in neither torch nor transformers. Names that do not stand here may change.

The examples that name a folder use this model, and what the example of `tersely.compress` makes of it:

<!-- run -->
```bash
tersely finetune encoder --task sequence_classification \\
    --train_file reviews/train.tsv --eval_file reviews/dev.tsv --output_dir model --max_steps 4
```
"""
MODULES = {
    "tersely": "What compresses. Needs the extra `compress`, but for `UserError`, `Progress` and `runtime`, and for "
    "`evaluate`, `benchmark` and the forms of `export` where all models are artifacts.",
    "tersely.runtime": "What runs artifacts. The base install is enough.",
    "tersely.testing": "Checks for plug-ins of your own. An `AssertionError` names the property that does not hold.",
}
RESULTS = {
    "What compressing gives": (CompressionResult, Measured, Score, Answers, Comparison),
    "What fine-tuning, exporting and measuring give": (
        Finetuned,
        Exported,
        Evaluation,
        Benchmark,
        Cell,
        Timing,
        LoadingCost,
    ),
    "What predicting gives": (Classified, Tagged, Entity, Answered, OwnOutputs),
}
RUN = {
    "tersely.compress": """\
import tersely

result = tersely.compress("model", output_dir="smaller", eval_file="reviews/dev.tsv", strategy="dynamic+embeddings")
print(result.path, result.best.name, result.best.score.value, result.best.comparison.same_answer)""",
    "tersely.finetune": """\
import tersely

rows = [{"text": "A lovely film.", "label": "positive"}, {"text": "A dull film.", "label": "negative"}] * 8
done = tersely.finetune(
    "encoder",
    output_dir="tuned",
    train_file=rows,  # or a file, or a datasets.Dataset
    eval_file="reviews/dev.tsv",
    task="sequence_classification",
    max_steps=4,
)
print(done.folder, done.score.value, done.steps)""",
    "tersely.export": """\
import tersely

done = tersely.export("model", output_dir="artifact", eval_file="reviews/dev.tsv")
print(done.artifact.folder, done.parity, done.score.value)""",
    "tersely.evaluate": """\
import tersely

found = tersely.evaluate("smaller/best", eval_file="reviews/dev.tsv", against="model", threads=1)
print(found)
print(found.value, found.comparison.drop.drop, found.comparison.same_answer)""",
    "tersely.benchmark": """\
import tersely

found = tersely.benchmark("model", engines=["torch", "onnxruntime"], batch_sizes=[1], lengths=[32], seconds=0.1)
print(found)
print([(cell.timing.engine, cell.timing.ratio) for cell in found.cells])""",
    "tersely.runtime.load": """\
from tersely import runtime

model = runtime.load("smaller/best", threads=1)
print([answer.label for answer in model.predict(["A quiet, moving film.", "A dull, lifeless film."])])""",
    "tersely.runtime.Predictor": """\
from tersely import runtime

model = runtime.load("smaller/best").with_batch_size(8)
answer = model.predict("A lovely film.")[0]
print(model.task.labels, model.engine.name, answer.label, answer.score)""",
    "tersely.runtime.choose": """\
from tersely import artifact, runtime

graph, engine = runtime.choose(artifact.read("smaller/best"))
print(graph.path, graph.precision, engine)""",
    "tersely.runtime.open_encoder": """\
from tersely import artifact, runtime

encoder = runtime.open_encoder(artifact.read("smaller/best"))
print(encoder.vocab_size)""",
    "tersely.runtime.ClassWarning": """\
import warnings

from tersely import runtime

with warnings.catch_warnings():
    warnings.simplefilter("error", runtime.ClassWarning)  # rather no answer than a wrong one
    model = runtime.load("smaller/best")""",
    "tersely.__version__": """\
import tersely

print(tersely.__version__)""",
}
"""Examples that need files; the others stand in the docstrings."""
ELSEWHERE = {
    "tersely.load_model": "[staying in torch](../tutorial_dynamic_quantization.md#staying-in-torch)",
    "tersely.Trainer": "[port a PaddleNLP compression script](../how_to/port_a_paddlenlp_script.md)",
}
"""Where the example of a name stands, if not here."""
HIDDEN = {"error", "compute_loss", "fidelity", "is_within", "logit_change", "mean_speed", "title", "table", "drop_line"}
"""Methods that others call, not users."""


def page() -> str:
    """A section for each module, and one for what comes back."""
    parts = [HEAD]
    for module, what in MODULES.items():
        parts.append(f"## {module}\n\n{what}\n")
        parts += [section(f"{module}.{name}") for name in _names(module)]
    for title, kinds in RESULTS.items():
        parts.append(f"## {title}\n")
        parts += [_fields(kind) for kind in kinds]
    return "\n".join(parts)


def _names(module: str) -> list[str]:
    """Public names of a module; a module or a result among them has a section of its own."""
    home = importlib.import_module(module)
    elsewhere = [kind for kinds in RESULTS.values() for kind in kinds]
    found = {name: getattr(home, name) for name in home.__all__}
    return sorted(
        (n for n, what in found.items() if not inspect.ismodule(what) and what not in elsewhere), key=str.lower
    )


def section(path: str) -> str:
    """One public name: how it is called, what it does, an example."""
    module, _, name = path.rpartition(".")
    thing = getattr(importlib.import_module(module), name)
    parts = [f"### `{path}`", ""]
    if isinstance(thing, str):
        parts += ["The version that is installed.", ""]
    elif inspect.isclass(thing) and (issubclass(thing, Warning) or getattr(thing, "_is_protocol", False)):
        parts += documented(thing)
    else:
        parts += _code(signature(name, thing)) + documented(thing)
    if inspect.isclass(thing):
        for member, what in _members(thing):
            parts += _code(signature(member, what)) if inspect.isfunction(what) else [f"`{member}`", ""]
            parts += documented(what)
    if path in RUN:
        parts += ["<!-- run -->", *_code(RUN[path])]
    if path in ELSEWHERE:
        parts += [f"Example: {ELSEWHERE[path]}.", ""]
    return "\n".join(parts)


def _members(kind: Any) -> Iterator[tuple[str, Any]]:
    """Public methods and properties that the class itself defines."""
    for name, what in vars(kind).items():
        if name.startswith("_") or name in HIDDEN:
            continue
        if (inspect.isfunction(what) or isinstance(what, property)) and what.__doc__:
            yield name, what


def signature(name: str, thing: Any) -> str:
    """How it is called, on several lines where one is too long.

    >>> signature("load", lambda folder, *, threads=None: None)
    'load(folder, *, threads=None)'
    """
    found = inspect.signature(thing)
    given = [_Bare.parameter(one) for one in found.parameters.values() if one.name != "self"]
    text = str(found.replace(parameters=given, return_annotation=_Bare.of(found.return_annotation)))
    line = f"{name}{text}"
    if len(line) <= 100:
        return line
    inside, arrow, given = text[1:].rpartition(") -> ")
    if not arrow:
        inside, given = text[1:-1], ""
    arguments = re.split(r", (?![^\[(]*[\])])", inside)
    return "\n".join([f"{name}(", *(f"    {one}," for one in arguments), f"){' -> ' + given if given else ''}"])


class _Bare(str):
    """A text that stands in a signature without quotes."""

    __slots__ = ()
    __repr__ = str.__str__

    @classmethod
    def of(cls, annotation: Any) -> Any:
        """Annotations are texts, as every file postpones them."""
        return cls(annotation) if isinstance(annotation, str) else annotation

    @classmethod
    def parameter(cls, one: inspect.Parameter) -> inspect.Parameter:
        """Defaults that are objects have no text of their own."""
        default = one.default
        if default is SILENT:
            default = cls("SILENT")
        return one.replace(annotation=cls.of(one.annotation), default=default)


def documented(thing: Any) -> list[str]:
    """The docstring: its prose, its arguments as a list, then its example."""
    text = inspect.getdoc(thing) or ""
    example = re.search(r"^(Example:\n)?( *)>>> ", text, re.MULTILINE)
    prose = text[: example.start()].rstrip() if example else text
    parts = [SECTION.sub(_listed, prose).rstrip(), ""]
    if example:
        code = textwrap.dedent(text[example.start() + len(example[1] or "") :]).rstrip()
        parts += _code(code, "pycon")
    return parts


SECTION = re.compile(r"^(Args|Returns|Raises|Attributes):\n((?:    .*\n?|\n(?=    ))+)", re.MULTILINE)


def _listed(section: re.Match[str]) -> str:
    """A section of a docstring: a list of names, or for what comes back a sentence."""
    title, body = section[1], textwrap.dedent(section[2]).strip()
    items = [" ".join(item.split()) for item in re.split(r"\n(?=\S)", body)]
    if title != "Returns":
        items = ["- `" + item.replace(": ", "`: ", 1) for item in items]
    return "\n".join([f"{title}:", "", *items, ""])


def _fields(kind: Any) -> str:
    """A result: its docstring and what it holds."""
    lines = [f"### {kind.__name__}", "", *documented(kind), "| field | what |", "|---|---|"]
    for field in dataclasses.fields(kind):
        type_ = str(field.type).replace("|", "\\|")
        lines.append(f"| `{field.name}` | `{type_}` |" if "\\" not in type_ else f"| `{field.name}` | {type_} |")
    lines += [f"| `{name}` | {inspect.getdoc(what)} |" for name, what in _members(kind)]
    return "\n".join(lines) + "\n"


def _code(text: str, language: str = "python") -> list[str]:
    return [f"```{language}", text, "```", ""]
