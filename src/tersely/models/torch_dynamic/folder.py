"""A torch model with INT8 linear layers as a folder without pickle: what it holds, read with every check."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import transformers

from ...artifact import sha256
from ...data.typed_json import fill
from ...errors import UserError
from ...tasks import task_of_class
from ..carve.model import model_class
from ..torch_folder import quiet_transformers
from . import MANIFEST
from .linear import DynamicLinear

FORMAT_VERSION = 1
WEIGHTS = "model_quantized.safetensors"
"""Not `model.safetensors`: transformers would take that, and draw what it does not find there at random."""


@dataclass(frozen=True)
class DynamicManifest:
    """What `tersely_quantized.json` says: the INT8 layers, and by reason the linear ones that are not."""

    architecture: str
    weight_quantize_type: str
    layers: tuple[str, ...]
    left_float: Mapping[str, str]
    files: Mapping[str, str]
    tersely_version: str = ""
    format_version: int = FORMAT_VERSION


def read_dynamic(folder: str | Path) -> Any:
    """Load what `write_dynamic` wrote, for inference on CPUs; every file must be there and unchanged."""
    folder = Path(folder)
    manifest = _read_manifest(folder)
    try:
        tensors = safetensors.torch.load_file(folder / WEIGHTS)
        layers = {}
        for name in manifest.layers:
            integers, scales = tensors.pop(f"{name}.integers"), tensors.pop(f"{name}.scales")
            layers[name] = DynamicLinear(integers, scales, tensors.get(f"{name}.bias"))
            # Zeros that take no memory, until the layer takes their place. With every weight given transformers draws
            # none: 110 M weights load in 0.5 s instead of 5, and torch's generator stays where it was.
            tensors[f"{name}.weight"] = torch.zeros(()).expand(integers.shape)
        module = _build(folder, manifest.architecture, tensors)
        for name, layer in layers.items():
            module.set_submodule(name, layer)
    except UserError:
        raise
    except Exception as error:  # transformers, safetensors and torch each raise kinds of their own
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise UserError(f"The quantized model cannot be loaded: {reason}", where=str(folder)) from error
    return module.requires_grad_(False).eval()


def _build(folder: Path, architecture: str, tensors: Mapping[str, Any]) -> Any:
    """The model that config.json describes, with these weights and no others."""
    kind = getattr(transformers, architecture, None)
    if kind is None or task_of_class(architecture) is None:
        raise UserError(f"transformers {transformers.__version__} has no '{architecture}'.", where=str(folder))
    with quiet_transformers():
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        module, report = model_class(kind, config).from_pretrained(
            None, config=config, state_dict=tensors, dtype=torch.float32, trust_remote_code=False,
            output_loading_info=True,
        )  # fmt: skip
    for problem in ("missing_keys", "unexpected_keys"):
        for name in sorted(report[problem])[:1]:
            raise UserError(f"The weights do not fit the config: {problem.split('_')[0]} '{name}'.", where=str(folder))
    return module


def _read_manifest(folder: Path) -> DynamicManifest:
    place = folder / MANIFEST
    try:
        content = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"The manifest is damaged: {error}.", where=str(place), hint="Write it anew.") from None
    version = content.get("format_version") if isinstance(content, dict) else None
    if version != FORMAT_VERSION:
        raise UserError(
            f"The folder has format version {version}; this tersely reads version {FORMAT_VERSION}.",
            where=str(place),
            hint="Update tersely." if isinstance(version, int) else "Write it anew.",
        )
    manifest = fill(DynamicManifest, content, "The manifest", where=str(place))
    for name in ("config.json", WEIGHTS, *manifest.files):
        if Path(name).name != name or name not in manifest.files:
            raise UserError(f"The manifest's list of files is damaged ('{name}').", where=str(place))
        if not (folder / name).is_file():
            raise UserError(f"The file '{name}' is missing.", where=str(folder), hint="Copy the whole folder again.")
        if sha256(folder / name) != manifest.files[name]:
            what = f"The file '{name}' has changed since it was written."
            raise UserError(what, where=str(folder), hint="Copy the whole folder again.")
    return manifest
