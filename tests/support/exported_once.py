"""torch's exporter runs once for each kind of model of a test run: other weights traced give the same graph.

Four seconds each of the suite's hundreds. A graph that is kept gets the weights of the model at hand; one that holds
numbers which are nobody's weights is kept for the same weights alone. What Tersely makes of a trace, and its comparison
with the model's own logits, runs every time. Tests of tracing itself (`FOR_REAL`) and processes that do not ask for
`export_once` trace every time too.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

FOR_REAL = ("tests/graphs/", "tests/paddle_api/", "tests/deploy/test_export", "tests/compression/test_promises.py")
"""Where tests look at what tracing does, to a live model for example."""
FOLDER = "TERSELY_TEST_EXPORTS"
"""The variable that names the folder of a run's traces."""
PLAIN = (bool, int, float, str, type(None), tuple, list)
NAMES = ("name_or_path", "id2label", "label2id", "transformers_version")
"""What a model keeps for others and no forward reads."""


def for_real(item: pytest.Item) -> bool:
    """Whether a test is about tracing."""
    return item.nodeid.startswith(FOR_REAL)


def export_once() -> None:
    """Wrap torch's exporter in this process, if torch is there at all."""
    onnx = getattr(sys.modules.get("torch"), "onnx", None)
    if onnx is not None:
        onnx.export = _wrapped(onnx.export)


@contextmanager
def keeping(folder: Path | None) -> Iterator[None]:
    """Keep traces in a folder meanwhile, in processes that are started too; None: trace everything."""
    before = os.environ.pop(FOLDER, None)
    try:
        if folder:
            os.environ[FOLDER] = str(folder)
        yield
    finally:
        os.environ.pop(FOLDER, None)
        if before:
            os.environ[FOLDER] = before


def _wrapped(export: Any) -> Any:
    @wraps(export)
    def call(*words: Any, **named: Any) -> Any:
        import onnx

        folder = os.environ.get(FOLDER)
        # With more words it is the older exporter, which tests alone call, to write a file.
        kinds = (
            [fingerprint(*words, named, weights=weights) for weights in (False, True)]
            if folder and len(words) == 2
            else []
        )
        if not kinds or None in kinds:
            return export(*words, **named)
        places = [Path(folder) / f"{kind}.onnx" for kind in kinds]
        place = next((path for path in places if path.exists()), None)
        if place is None:
            place = _keep(export(*words, **named).model_proto, words[0], *places)
        proto = onnx.load(place)
        _fill(proto, words[0], json.loads(place.with_suffix(".json").read_text(encoding="utf-8")))
        return SimpleNamespace(model_proto=proto)

    return call


def _keep(proto: Any, module: Any, anyones: Path, its_own: Path) -> Path:
    """Write a graph and which weight each of its tensors is: for all models of the kind, or for this one alone."""
    import onnx

    sources = origins(proto, module)
    place = its_own if sources is None else anyones
    place.parent.mkdir(parents=True, exist_ok=True)
    for suffix, write in (
        (".json", lambda path: path.write_text(json.dumps(sources or {}), encoding="utf-8")),
        (".onnx", lambda path: onnx.save_model(proto, path)),
    ):
        unfinished = place.with_suffix(f".{os.getpid()}")
        write(unfinished)
        unfinished.rename(place.with_suffix(suffix))
    return place


def origins(proto: Any, module: Any) -> dict[str, tuple[str, bool]] | None:
    """The parameter that each tensor of a graph is, as it is or transposed; None if one with numbers is neither."""
    from onnx import TensorProto, numpy_helper

    weights = {name: weight.detach().cpu().numpy() for name, weight in module.named_parameters()}
    forms = {name: {_form(weight): False, _form(weight.T): True} for name, weight in weights.items()}
    buffers = {_form(buffer.detach().cpu().numpy()) for buffer in module.buffers()}
    inside = [value.t for node in proto.graph.node for value in node.attribute if value.HasField("t")]
    found = {}
    for tensor in [*proto.graph.initializer, *inside]:
        value = numpy_helper.to_array(tensor)
        plain = value.size == 1 or tensor.data_type in (TensorProto.INT64, TensorProto.BOOL) or _form(value) in buffers
        if plain and tensor.name not in weights:
            continue
        names = [tensor.name] if tensor.name in weights else list(weights)
        name = next((name for name in names if _form(value) in forms[name]), None)
        if name is None or not tensor.name:
            return None
        found[tensor.name] = (name, forms[name][_form(value)])
    return found


def _fill(proto: Any, module: Any, sources: dict[str, tuple[str, bool]]) -> None:
    """Put a model's weights where those of another stand."""
    weights = dict(module.named_parameters())
    for tensor in proto.graph.initializer:
        if tensor.name in sources:
            name, transposed = sources[tensor.name]
            weight = weights[name].detach().cpu().numpy()
            tensor.raw_data = (weight.T if transposed else weight).tobytes()


def _form(value: Any) -> tuple[Any, ...]:
    return value.shape, value.dtype.str, value.tobytes()


def fingerprint(module: Any, arguments: Any, named: Any, weights: bool = True) -> str | None:
    """Of all that a trace depends on; None where it has functions of its own, which have no fingerprint.

    Without `weights`: of their shapes, of which are the same, and of those that the exporter may take for something
    simpler, such as zeros.
    """
    import torch

    digest = hashlib.sha256(repr((weights, sorted(named.items(), key=lambda item: item[0]))).encode())
    for name, part in module.named_modules():
        if "forward" in vars(part) or part._forward_hooks or part._forward_pre_hooks:
            return None
        config = getattr(part, "config", None)
        values = {key: value for key, value in vars(part).items() if isinstance(value, PLAIN)}
        if config is not None:
            values |= {**config.to_dict(), "attention": getattr(config, "_attn_implementation", None)}
        settings = sorted((key, repr(value)) for key, value in values.items() if key[0] != "_" and key not in NAMES)
        digest.update(repr((name, type(part), settings)).encode())
    parameters = module.named_parameters(remove_duplicate=False)
    alike: dict[bytes, int] = {}
    same: dict[int, int] = {}
    for name, tensor in [*parameters, *module.named_buffers(remove_duplicate=False), *enumerate(arguments)]:
        flat = tensor.detach().cpu().contiguous()
        digest.update(repr((name, flat.dtype, tuple(flat.shape), same.setdefault(id(tensor), len(same)))).encode())
        content = flat.reshape(-1).view(torch.uint8).numpy().tobytes()
        simple = (
            not flat.numel()
            or bool((flat == flat.reshape(-1)[:1]).all())
            or (flat.ndim == 2 and torch.equal(flat, flat.T))
        )
        if weights or simple or not isinstance(tensor, torch.nn.Parameter):
            digest.update(content)
        else:
            digest.update(repr(alike.setdefault(content, len(alike))).encode())
    return digest.hexdigest()
