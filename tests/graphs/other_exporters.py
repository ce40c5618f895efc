"""Graphs as other tools make them: torch's two exporters as they come, ONNX Runtime's optimizer on top of one."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx


def batch(pad: int = 0, length: int = 9, seed: int = 0) -> dict[str, np.ndarray]:
    """Three rows, two of them padded."""
    random = np.random.default_rng(seed)
    mask = (np.arange(length) < np.array([[length], [4], [1]])).astype(np.int64)
    ids = np.where(mask == 1, random.integers(5, 120, mask.shape), pad)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": (np.arange(length) > 4) * mask}


def torchscript(module: Any, path: Path, *, opset: int = 17, **options: Any) -> Path:
    """What `torch.onnx.export` gave until 2.8, and optimum gives still."""
    import torch

    names, arguments = _arguments(module)
    free = {name: {0: f"{name}_0", 1: f"{name}_1"} for name in names} | {"logits": {0: "batch"}}
    with _quiet(), _eager(module) as eager:
        torch.onnx.export(
            _by_position(eager, names), tuple(arguments.values()), str(path), dynamo=False, opset_version=opset,
            input_names=names, output_names=["logits"], dynamic_axes=free, **options,
        )  # fmt: skip
    return path


def dynamo(module: Any, path: Path, *, opset: int = 18, optimize: bool = True) -> Path:
    """What `torch.onnx.export` gives now, without our names."""
    import torch

    names, arguments = _arguments(module)
    sizes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    with _quiet(), _eager(module) as eager, torch.no_grad():
        torch.onnx.export(
            eager, (), kwargs=arguments, dynamo=True, opset_version=opset, optimize=optimize, input_names=names,
            output_names=["logits"], dynamic_shapes=dict.fromkeys(names, sizes), verbose=False,
        ).save(str(path))  # fmt: skip
    return path


FUSIONS = ("fused", "raw_mask", "multi_head", "fast_gelu", "engine")


def fuse(graph: Path, path: Path, kind: str) -> Path:
    """What onnxruntime.transformers makes of a graph; optimum's O1 is "engine", O2 "fused", O3 "fast_gelu"."""
    from onnxruntime.transformers.fusion_options import FusionOptions
    from onnxruntime.transformers.optimizer import optimize_model

    options = FusionOptions("bert")
    options.use_raw_attention_mask(kind == "raw_mask")
    options.use_multi_head_attention = kind == "multi_head"
    options.enable_gelu_approximation = kind == "fast_gelu"
    level = 2 if kind == "engine" else 0
    with _quiet():
        model = optimize_model(
            str(graph), model_type="bert", num_heads=4, hidden_size=32, optimization_options=options, opt_level=level,
            only_onnxruntime=level > 0,
        )  # fmt: skip
        model.save_model_to_file(str(path))
    return path


def changed(graph: Path, path: Path, change: Callable[[Any], None]) -> Path:
    """A copy of a graph file, with a change to it."""
    proto = onnx.load(graph)
    change(proto)
    onnx.save(proto, path)
    return path


def operators(proto: onnx.ModelProto) -> set[str]:
    """Those of the standard by name, others with their domain."""
    return {f"{node.domain}.{node.op_type}" if node.domain else node.op_type for node in proto.graph.node}


def values(proto: onnx.ModelProto, names: list[str], rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What ONNX Runtime computes at inner values of a graph, with nothing fused."""
    import onnxruntime

    shown = onnx.ModelProto()
    shown.CopyFrom(proto)
    inputs = {value.name for value in proto.graph.input}
    del shown.graph.output[:]
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in inputs)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(shown.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed = {name: rows[name] for name in inputs}
    outputs = [value.name for value in session.get_outputs()]
    return dict(zip(outputs, session.run(outputs, feed), strict=True)) | feed


def linears(module: Any) -> dict[str, Any]:
    """The linear layers of a torch model that its head uses, by name."""
    import torch

    return {name: part for name, part in module.named_modules() if isinstance(part, torch.nn.Linear)}


def _arguments(module: Any) -> tuple[list[str], dict[str, Any]]:
    import torch

    from tersely.engines.torch import input_names

    names = list(input_names(module))
    rows = batch(module.config.pad_token_id)
    return names, {name: torch.from_numpy(rows[name]) for name in names}


def _by_position(module: Any, names: list[str]) -> Any:
    import torch

    class ByPosition(torch.nn.Module):
        """Tensors in by position, logits out; adds nothing to names, unlike a plain wrapper."""

        def __init__(self) -> None:
            super().__init__()
            self.__dict__["module"] = module  # not as a part: its parts are this one's own
            for name, part in module.named_children():
                self.add_module(name, part)

        def forward(self, *arguments: Any) -> Any:
            return self.module(**dict(zip(names, arguments, strict=True))).logits

    return ByPosition()


@contextmanager
def _eager(module: Any) -> Iterator[Any]:
    module = copy.deepcopy(module).eval()
    module.set_attn_implementation("eager")
    yield module


@contextmanager
def _quiet() -> Iterator[None]:
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)
