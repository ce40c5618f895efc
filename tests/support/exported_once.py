"""torch's exporter runs once for each model of a test run: the same weights traced again give the same bytes.

Four seconds each of the suite's hundreds. What Tersely makes of a trace, and its comparison with the model's own
logits, runs every time. Tests of tracing itself (`FOR_REAL`) and processes that do not ask for `export_once` trace
every time too.
"""

from __future__ import annotations

import hashlib
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
        key = fingerprint(*words, named) if folder and len(words) == 2 else None
        if not folder or not key:
            return export(*words, **named)
        place = Path(folder) / f"{key}.onnx"
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            unfinished = place.with_suffix(f".{os.getpid()}")
            onnx.save_model(export(*words, **named).model_proto, unfinished)
            unfinished.rename(place)
        return SimpleNamespace(model_proto=onnx.load_model(place))

    return call


def fingerprint(module: Any, arguments: Any, named: Any) -> str | None:
    """Of all that a trace depends on; None where it has functions of its own, which have no fingerprint."""
    import torch

    digest = hashlib.sha256(repr(sorted(named.items(), key=lambda item: item[0])).encode())
    for name, part in module.named_modules():
        if "forward" in vars(part) or part._forward_hooks or part._forward_pre_hooks:
            return None
        values = {key: value for key, value in vars(part).items() if isinstance(value, PLAIN) and key[0] != "_"}
        digest.update(repr((name, type(part), sorted(values.items()))).encode())
        if hasattr(part, "config"):
            digest.update(repr(part.config).encode())
    tensors = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    for name, tensor in [*tensors, *enumerate(arguments)]:
        flat = tensor.detach().cpu().contiguous()
        digest.update(repr((name, flat.dtype, tuple(flat.shape))).encode())
        digest.update(flat.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
