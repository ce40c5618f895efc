"""Trains a learnt model for INT8 from a process of its own: plainly, or under torchrun.

python train_int8_once.py MODEL_PARENT WORK        beside the model lies its graph, which `write_graph` makes
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import onnx

from fake_quantized import Subject, graph_of
from learnable import rows, single
from slow_process import slow_down_others
from tersely.models.torch_folder import load_module
from tersely.qat import QatSettings, TrainingRun, train_int8
from widths import examples

SETTINGS = QatSettings(algo_list=("min_max",), pact_rate=5.0)
GRAPH = "graph.onnx"


def write_graph(parent: Path) -> None:
    """Once for all processes."""
    onnx.save(graph_of(load_module(parent / "model")), parent / GRAPH)


def main() -> None:
    """Write what came out to `made-<rank>.json` beside the work folder."""
    slow_down_others()
    parent, work = Path(sys.argv[1]), Path(sys.argv[2])
    texts = tuple(row["text"] for row in rows(single, 16, seed=5))
    subject = Subject.of(parent / "model", texts, onnx.load(parent / GRAPH))
    size = int(os.environ.get("BATCH", "8"))
    training = {"learning_rate": 1e-3, "max_steps": 9, "save_steps": 3, "per_device_train_batch_size": size}
    run = TrainingRun(
        subject.folder, examples(subject.folder, "train")[:104], examples(subject.folder, "dev"), work, training, seed=7
    )
    found = train_int8(run, subject.calibrated, SETTINGS)
    ranges = {name: [layer.range.low, layer.range.high] for name, layer in found.quant_map.layers.items()}
    summary = {"folder": str(found.folder.relative_to(work)), "step": found.step, "score": found.score.value}
    place = work.parent / f"made-{os.environ.get('RANK', '0')}.json"
    place.write_text(json.dumps({**summary, "ranges": ranges}), encoding="utf-8")


if __name__ == "__main__":
    main()
