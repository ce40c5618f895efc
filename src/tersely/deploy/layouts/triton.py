"""A model in a Triton model repository, for its ONNX Runtime: `<name>/config.pbtxt` and `<name>/1/model.onnx`."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...artifact import Artifact, Graph
from ...errors import UserError
from ...tasks import from_json

CONFIG, LABELS = "config.pbtxt", "labels.txt"
MAX_BATCH = 64
"""Rows a batch at most. Triton asks for a number; PaddleNLP's repositories have this one."""

DELAY = 2000
"""Microseconds that a request waits for others to share its batch."""

TYPES = {
    "tensor(int64)": "TYPE_INT64",
    "tensor(int32)": "TYPE_INT32",
    "tensor(bool)": "TYPE_BOOL",
    "tensor(float)": "TYPE_FP32",
}


@dataclass(frozen=True)
class TritonLayout:
    """One model of a repository; other models that lie there are left alone."""

    name: str
    engine: str = "onnxruntime"
    graph: str = "1/model.onnx"

    def place(self, output_dir: Path) -> Path:
        """The model's folder in the repository."""
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.name):
            raise UserError(
                f"A model in Triton cannot be called '{self.name}': letters, digits, '.', '_' and '-' are expected.",
                hint="Give another name: --triton NAME",
            )
        return output_dir / self.name

    def write(self, opened: Artifact, graph: Graph, folder: Path) -> tuple[str, ...]:
        """Copy the graph and describe it."""
        (folder / self.graph).parent.mkdir()
        shutil.copyfile(opened.path(graph.path), folder / self.graph)
        data = []
        for name in graph.data:  # the graph refers to it by this name
            data.append(Path(self.graph).with_name(Path(name).name).as_posix())
            shutil.copyfile(opened.path(name), folder / data[-1])
        labels = _labels(opened)
        if labels:
            (folder / LABELS).write_text("".join(f"{label}\n" for label in labels), encoding="utf-8")
        text = config(self.name, folder / self.graph, labelled=bool(labels))
        (folder / CONFIG).write_text(text, encoding="utf-8")
        return tuple(data)


def config(name: str, graph: Path, *, labelled: bool = False) -> str:
    """Describe a graph in Triton's words: names, types and dimensions as the graph has them.

    Triton adds the batch's dimension itself; a graph without a free one takes one row at a time.
    """
    from ...engines.onnxruntime import signature

    inputs, outputs = signature(graph)
    batched = all(value.shape and not isinstance(value.shape[0], int) for value in (*inputs, *outputs))
    lines = [
        f'name: "{name}"',
        'backend: "onnxruntime"',
        f"max_batch_size: {MAX_BATCH if batched else 0}",
        *_tensors("input", inputs, batched),
        *_tensors("output", outputs, batched, f' label_filename: "{LABELS}"' if labelled else ""),
    ]
    if batched:
        lines.append(f"dynamic_batching {{ max_queue_delay_microseconds: {DELAY} }}")
    lines.append("instance_group [ { count: 1 kind: KIND_CPU } ]")
    return "\n".join(lines) + "\n"


def _tensors(kind: str, values: Sequence[Any], batched: bool, more: str = "") -> list[str]:
    lines = []
    for value in values:
        if value.type not in TYPES:
            raise UserError(f"The {kind} '{value.name}' is of type {value.type}, which no Triton type is known for.")
        sizes = [size if isinstance(size, int) else -1 for size in value.shape[1 if batched else 0 :]]
        dims = ", ".join(map(str, sizes))
        lines.append(f'{kind} [ {{ name: "{value.name}" data_type: {TYPES[value.type]} dims: [ {dims} ]{more} }} ]')
    return lines


def _labels(opened: Artifact) -> list[str]:
    """What the outputs of a classifier stand for, one a line; none where the file could not say it."""
    task = from_json(opened.manifest.task)
    labels = list(task.labels) if task.loss == "single_label_classification" else []
    return [] if any("\n" in label or "\r" in label for label in labels) else labels
