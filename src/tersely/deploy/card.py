"""The artifact's README: what it is, how well it does, how to run it."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill
from typing import Any

import yaml

from ..artifact import Graph, Manifest, Provenance
from ..engines import REFERENCE
from ..measure.score import Score
from ..strategy import PRUNERS
from ..tasks import facts_of

HUB_METRICS = {
    "em": "exact_match",
    "macro_f1": "f1",
    "mcc": "matthews_correlation",
    "micro_f1": "f1",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
}
"""Metrics that the Hub knows by another name."""
FROM_PARENT = ("language", "license", "license_name", "license_link", "base_model")
"""Entries of a card that a model has from the one that it was made of."""
OTHER_TOOLS = "other tools (TensorRT, and others that want s8 with zero point 0)"
DYNAMIC = (
    "The ranges of inputs are taken from each batch as it runs. An answer may therefore depend, a little, on the rows "
    "that share its batch; ask row by row (`batch_size=1`) where it must not."
)
ONE_CLASS = (
    "The weights use all 8 bits, which older CPUs cannot sum exactly: elsewhere answers may be wrong. "
    "`tersely check` tells whether they are."
)


def card(name: str, manifest: Manifest, *, at_run_time: bool = False) -> str:
    """Write the model card of an artifact; `at_run_time`: its ranges are taken from each batch."""
    task: Mapping[str, Any] = manifest.task
    facts = facts_of(task["name"])
    rows = [
        ("task", task["name"]),
        ("model type", manifest.model_type),
        ("strategy", manifest.strategy),
        ("inputs", f"{', '.join(manifest.inputs)} ({manifest.input_dtype})"),
        ("longest input", f"{task['max_seq_length']} tokens"),
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
    return f"""{front_matter(_metadata(name, manifest))}
# {name}

| | |
|---|---|
{table}

Run it with Tersely, which needs no torch for that:

```python
from tersely import runtime

model = runtime.load("path/to/this/folder")
{facts.call}  # {facts.gives}
```
{_notes(manifest, at_run_time)}
Every file's sha256 stands in `tersely.json` and is checked when the folder is loaded.
"""


def finetuned_card(name: str, task: str, provenance: Provenance, score: Mapping[str, Any]) -> str:
    """Write the card of a fine-tuned transformers folder; what the encoder learnt from is not what this one did."""
    metadata = {
        **origin_metadata(provenance),
        "base_model_relation": "finetune" if provenance.base_model else None,
        "library_name": "transformers",
        "pipeline_tag": facts_of(task).pipeline_tag,
        **score_metadata(name, task, score),
    }
    return f"{front_matter(metadata)}\n# {name}\n\nFine-tuned with Tersely for {task}: {score_line(score)}.\n"


def front_matter(metadata: Mapping[str, Any]) -> str:
    """What the Hub reads of a card, as YAML; entries without a value are left out."""
    known = {key: value for key, value in metadata.items() if value}
    return f"---\n{yaml.safe_dump(known, sort_keys=False, allow_unicode=True)}---"


def origin_metadata(provenance: Provenance) -> dict[str, Any]:
    """What a card takes over from its parent's."""
    return {name: getattr(provenance, name) for name in FROM_PARENT}


def score_metadata(name: str, task: str, score: Mapping[str, Any] | None) -> dict[str, Any]:
    """A score in the form of the Hub's `model-index`; the rows that gave it are the user's own."""
    if score is None:
        return {}
    metric = HUB_METRICS.get(score["metric"], score["metric"])
    measured = {"type": metric, "name": score["metric"], "value": score["value"]}
    measured["args"] = {key: score[key] for key in ("interval", "engine") if score.get(key) is not None}
    rows = {"type": "own-rows", "name": score["on"], "args": {"rows": score["rows"]}}
    result = {"task": {"type": facts_of(task).pipeline_tag or "other"}, "dataset": rows, "metrics": [measured]}
    return {"metrics": [metric], "model-index": [{"name": name, "results": [result]}]}


def _metadata(name: str, manifest: Manifest) -> dict[str, Any]:
    runs = {engine for graph in manifest.graphs for engine in graph.engines}
    is_int8 = any(graph.precision == "int8" for graph in manifest.graphs)
    tags = {
        "onnx": any(graph.path.endswith(".onnx") for graph in manifest.graphs),
        "openvino": "openvino" in runs,
        "int8": is_int8,
        "pruned": any(step in PRUNERS for step in manifest.strategy.split("+")),
    }
    origin = origin_metadata(manifest.provenance)
    return {
        **origin,
        "base_model_relation": "quantized" if is_int8 and origin["base_model"] else None,
        "library_name": "tersely",
        "pipeline_tag": facts_of(manifest.task["name"]).pipeline_tag,
        "datasets": manifest.provenance.datasets,
        "tags": [tag for tag, is_so in tags.items() if is_so],
        **score_metadata(name, manifest.task["name"], manifest.score),
    }


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
    if note := facts_of(manifest.task["name"]).note:
        said += "\n" + fill(note.format(**manifest.task), 120) + "\n"
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


def score_note(scored: Score, engine: str = REFERENCE) -> dict[str, Any]:
    """What a manifest says of a score."""
    return {
        "metric": scored.metric,
        "value": scored.value,
        "interval": None if scored.interval is None else list(scored.interval),
        "rows": scored.rows,
        "on": "eval rows",
        "engine": engine,
    }
