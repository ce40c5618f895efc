"""Which packages are here: what a result depends on beside its options."""

from __future__ import annotations

import importlib.metadata
import platform

PACKAGES = ("numpy", "tokenizers", "onnxruntime", "openvino", "torch", "transformers", "onnx")


def python() -> str:
    """The interpreter's version."""
    return platform.python_version()


def system() -> str:
    """Operating system and kind of machine."""
    return f"{platform.system()} {platform.machine()}"


def packages() -> dict[str, str | None]:
    """Versions by package; None: not installed. Nothing is imported."""
    return {name: _version(name) for name in PACKAGES}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
