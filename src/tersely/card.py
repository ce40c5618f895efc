"""The artifact's README: what it is, how well it does, how to run it."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill
from typing import Any

from .artifact import Graph, Manifest
from .measure.score import Score

USES = {
    "sequence_classification": (
        'model.predict(["a text", ("or", "a pair of texts")])',
        "labels with scores",
    ),
    "token_classification": (
        'model.predict(["a text", ["or", "a", "list", "of", "words"]])',
        "entities with character offsets and scores",
    ),
    "question_answering": (
        'model.predict([("a question", "and the context that answers it")])',
        "answers with offsets and scores",
    ),
    "own": (
        'model.predict([{"input_ids": [101, 7592, 102]}])',
        "the model's outputs as they are",
    ),
}
PIPELINE_TAGS = {
    "sequence_classification": "text-classification",
    "token_classification": "token-classification",
    "question_answering": "question-answering",
}
OTHER_TOOLS = "other tools (TensorRT, and others that want s8 with zero point 0)"
DYNAMIC = (
    "The ranges of inputs are taken from each batch as it runs. An answer may therefore depend, a little, on the rows "
    "that share its batch; ask row by row (`batch_size=1`) where it must not."
)
OWN = (
    "This is a model of its owner's, a `{model_class}`: inputs and outputs are as its own forward has them, and what "
    "they mean is not part of the artifact."
)
ONE_CLASS = (
    "The weights use all 8 bits, which older CPUs cannot sum exactly: elsewhere answers may be wrong. "
    "`tersely check` tells whether they are."
)


def card(name: str, manifest: Manifest, *, at_run_time: bool = False) -> str:
    """Write the model card of an artifact; `at_run_time`: its ranges are taken from each batch."""
    task: Mapping[str, Any] = manifest.task
    call, gives = USES[task["name"]]
    rows = [
        ("task", task["name"]),
        ("model type", manifest.model_type),
        ("strategy", manifest.strategy),
        ("inputs", f"{', '.join(manifest.inputs)} ({manifest.input_dtype})"),
        ("longest input", f"{task['max_seq_length']} pieces"),
    ]
    if task.get("outputs"):
        rows.append(("outputs", ", ".join(task["outputs"])))
    if task.get("labels"):
        labels = task["labels"]
        shown = ", ".join(f"`{label}`" for label in labels[:20]) + (" …" if len(labels) > 20 else "")
        rows.append((f"labels ({len(labels)}, in order)", shown))
    rows.append(("score", score_line(manifest.score)))
    rows += [(f"`{graph.path}`", graph_line(graph)) for graph in manifest.graphs]
    table = "\n".join(f"| {left} | {right} |" for left, right in rows)
    tag = f"\npipeline_tag: {PIPELINE_TAGS[task['name']]}" if task["name"] in PIPELINE_TAGS else ""
    return f"""---
library_name: tersely{tag}
---
# {name}

| | |
|---|---|
{table}

Run it without torch (`pip install tersely`):

```python
from tersely import runtime

model = runtime.load("path/to/this/folder")
{call}  # {gives}
```
{_notes(manifest, at_run_time)}
Every file's sha256 stands in `tersely.json` and is checked when the folder is loaded.
"""


def graph_line(graph: Graph) -> str:
    """Say a graph's arithmetic, the engines that run it, and the CPUs on which it is right.

    >>> graph_line(Graph("onnx/model_signed.onnx", (), "int8"))
    'INT8, for other tools (TensorRT, and others that want s8 with zero point 0), right on every CPU'
    """
    engines = ", ".join(graph.engines) or OTHER_TOOLS
    if graph.precision != "int8":
        return f"{graph.precision.upper()}, for {engines}"
    where = "every CPU" if "all" in graph.cpu_classes else f"CPUs of the classes {', '.join(graph.cpu_classes)} alone"
    return f"INT8, for {engines}, right on {where}"


def _notes(manifest: Manifest, at_run_time: bool) -> str:
    """What a user of this strategy must know, as paragraphs."""
    said = ""
    if manifest.task["name"] == "own":
        said += "\n" + fill(OWN.format(**manifest.task), 120) + "\n"
    if at_run_time or "dynamic" in manifest.strategy.split("+"):
        said += "\n" + fill(DYNAMIC, 120) + "\n"
    runs = [graph for graph in manifest.graphs if graph.engines]
    if not any(graph.precision != "int8" or "all" in graph.cpu_classes for graph in runs):
        said += "\n" + fill(ONE_CLASS, 120) + "\n"
    return said


def score_line(score: Mapping[str, Any] | None) -> str:
    """Say the score with its interval, and on which rows; or that there is none."""
    if score is None:
        return "*not scored*: no labelled rows were given"
    value = f"{100 * score['value']:.2f}"
    if score["interval"] is not None:
        low, high = score["interval"]
        value += f" ({100 * low:.2f} to {100 * high:.2f})"
    return f"{score['metric']} {value} on {score['rows']} {score['on']}, {score['engine']}"


def score_note(scored: Score | None, engine: str = "onnxruntime") -> dict[str, Any] | None:
    """What a manifest says of a score."""
    if scored is None:
        return None
    return {
        "metric": scored.metric,
        "value": scored.value,
        "interval": None if scored.interval is None else list(scored.interval),
        "rows": scored.rows,
        "on": "eval rows",
        "engine": engine,
    }
