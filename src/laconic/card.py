"""The artifact's README: what it is, how well it does, how to run it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .artifact import Manifest

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
}
PIPELINE_TAGS = {
    "sequence_classification": "text-classification",
    "token_classification": "token-classification",
    "question_answering": "question-answering",
}


def card(name: str, manifest: Manifest) -> str:
    """Write the model card of an artifact."""
    task: Mapping[str, Any] = manifest.task
    call, gives = USES[task["name"]]
    rows = [
        ("task", task["name"]),
        ("model type", manifest.model_type),
        ("strategy", manifest.strategy),
        ("inputs", f"{', '.join(manifest.inputs)} ({manifest.input_dtype})"),
        ("longest input", f"{task['max_seq_length']} pieces"),
    ]
    if task.get("labels"):
        labels = task["labels"]
        shown = ", ".join(f"`{label}`" for label in labels[:20]) + (" …" if len(labels) > 20 else "")
        rows.append((f"labels ({len(labels)}, in order)", shown))
    rows.append(("score", score_line(manifest.score)))
    for graph in manifest.graphs:
        rows.append((f"`{graph.path}`", f"{graph.precision}, for {', '.join(graph.engines)}"))
    table = "\n".join(f"| {left} | {right} |" for left, right in rows)
    return f"""---
library_name: laconic
pipeline_tag: {PIPELINE_TAGS[task["name"]]}
---
# {name}

| | |
|---|---|
{table}

Run it without torch (`pip install laconic`):

```python
from laconic import runtime

model = runtime.load("path/to/this/folder")
{call}  # {gives}
```

Every file's sha256 stands in `laconic.json` and is checked when the folder is loaded.
"""


def score_line(score: Mapping[str, Any] | None) -> str:
    """Say the score with its interval, and on which rows; or that there is none."""
    if score is None:
        return "*not scored*: no labelled rows were given"
    low, high = score["interval"]
    value = f"{100 * score['value']:.2f} ({100 * low:.2f} to {100 * high:.2f})"
    return f"{score['metric']} {value} on {score['rows']} {score['on']}, {score['engine']}"
