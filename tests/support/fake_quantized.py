"""Small models, their graphs and calibration rows, for tests of quantization-aware training."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from models import SENTENCES
from tersely import engines
from tersely.graphs.export import export_onnx
from tersely.graphs.first_position import keep_first_position
from tersely.graphs.plain import unfold
from tersely.graphs.write_onnxruntime import write_onnxruntime
from tersely.graphs.write_qdq import write_qdq
from tersely.models.folder import ModelFolder, open_folder
from tersely.models.torch_folder import load_module
from tersely.qat import Calibrated, FakeQuantized, QatSettings
from tersely.qat.start import find_start, first_position_only
from tersely.quantize.samples import Samples
from tersely.quantize.targets import Targets, find_targets
from tersely.runtime.predictor import run


@dataclass(frozen=True)
class Subject:
    """A model folder with its graph and rows."""

    folder: ModelFolder
    model: Any
    proto: Any
    targets: Targets
    samples: Samples

    @classmethod
    def of(cls, path: Path, texts: tuple[Any, ...] = SENTENCES, proto: Any = None) -> Subject:
        """`proto`: its graph, where it is there already; an export takes four seconds."""
        folder = open_folder(path)
        model = load_module(path)
        task = folder.task
        if task.name == "question_answering":
            examples = task.examples([("what is it", text) for text in texts])
        else:
            examples = task.examples(list(texts))
        features = task.features(examples, folder.encoder)
        proto = graph_of(model) if proto is None else proto
        half = len(features) // 2
        samples = Samples(features[:half], features[half:], {"half": half}, folder.encoder.pad_id)
        return cls(folder, model, proto, find_targets(proto), samples)

    @property
    def calibrated(self) -> Calibrated:
        return Calibrated(self.proto, self.samples)

    def quantized(self, settings: QatSettings = QatSettings(), **more: Any) -> FakeQuantized:  # noqa: B008
        start = find_start(self.model, self.calibrated, settings, self.samples.features)
        short = first_position_only(self.calibrated)
        return FakeQuantized(self.model, start, self.targets, settings, first_only=short, **more)

    def logits(self, engine: Any) -> list[np.ndarray]:
        rows = [*self.samples.features, *self.samples.judging]
        return [np.asarray(logits) for logits in run(engine, rows, self.samples.pad_id, batch_size=1)]


def graph_of(model: Any) -> Any:
    """The plain graph of a model, its last layer short where it can be."""
    with tempfile.TemporaryDirectory() as scratch:
        export_onnx(model, Path(scratch) / "model.onnx")
        proto = unfold(onnx.load(Path(scratch) / "model.onnx"))
    keep_first_position(proto)
    return proto


def exported(quantized: FakeQuantized, place: Path) -> dict[str, Any]:
    """The trained model as INT8 graphs on the engines that run them."""
    proto, found = graph_of(quantized.plain()), quantized.quant_map()
    place.mkdir(parents=True, exist_ok=True)
    onnx.save_model(write_onnxruntime(proto, found), place / "fused.onnx")
    onnx.save_model(write_qdq(proto, found, signed=False), place / "standard.onnx")
    return {
        "onnxruntime": engines.load("onnxruntime", place / "fused.onnx", precision="int8"),
        "openvino": engines.load("openvino", place / "standard.onnx", precision="int8"),
    }
