"""A torch model with INT8 linear layers as a folder without pickle: what it holds, read with every check."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import safetensors.torch
import torch
import transformers
from torch import nn

from ..artifact import sha256
from ..errors import UserError, fill
from ..tasks import task_of_class
from .load import MANIFEST
from .torch_folder import quiet_transformers, with_weights

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
        module, report = with_weights(kind, config, None, state_dict=tensors)
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
        what = f"The folder has format version {version}; this tersely reads version {FORMAT_VERSION}."
        hint = "Update tersely." if isinstance(version, int) else "Write it anew."
        raise UserError(what, where=str(place), hint=hint)
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


@final
class DynamicLinear(nn.Module):  # type: ignore[misc]  # torch is Any to mypy
    """Inputs [..., in] times integers [out, in] and scales ([out], or [1] for all) plus a bias [out]: for inference.

    An input becomes 8-bit codes over the range of its whole batch, so that an answer depends a little on the rows that
    come with it. CPUs without VNNI sum pairs of products in 16 bits that saturate: what torch calls `reduce_range`
    avoids that with inputs of 7 bits. Here the integers do, as `quantize_weight` makes them for every CPU: half the
    change of the logits (MRPC, 0.15 instead of 0.31 on average) for the same time.

    >>> layer = DynamicLinear(torch.tensor([[100, 28]], dtype=torch.int8), torch.tensor([0.5]), torch.tensor([1.0]))
    >>> layer(torch.tensor([[255.0, 0.0], [0.0, 255.0]]))
    tensor([[12751.],
            [ 3571.]])
    """

    def __init__(self, integers: torch.Tensor, scales: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        super().__init__()
        if integers.dtype != torch.int8 or integers.ndim != 2 or scales.shape not in ((1,), (len(integers),)):
            what = f"Expected int8 integers [out, in] and scales [out] or [1]. Got {integers.dtype}"
            raise ValueError(f"{what} {list(integers.shape)} and {list(scales.shape)}.")
        self.out_features, self.in_features = integers.shape
        self._has_bias = bias is not None
        self._packed = _pack(integers, scales, bias)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """[..., in] to [..., out]; other float types are computed in FP32 and given back as they came."""
        output: torch.Tensor = torch.ops.quantized.linear_dynamic(input.float(), self._packed)
        return output.to(input.dtype)

    def extra_repr(self) -> str:
        """What `print` shows of it."""
        return f"in_features={self.in_features}, out_features={self.out_features}, dtype=int8"

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Give out what the kernels packed: kept once, not twice."""
        weight, bias = torch.ops.quantized.linear_unpack(self._packed)
        per_tensor = weight.qscheme() == torch.per_tensor_affine
        scales = torch.tensor([weight.q_scale()]) if per_tensor else weight.q_per_channel_scales()
        destination[f"{prefix}integers"], destination[f"{prefix}scales"] = weight.int_repr(), scales.float()
        if self._has_bias:  # some kernels give back zeros where there was none
            destination[f"{prefix}bias"] = bias.detach()


def _pack(integers: torch.Tensor, scales: torch.Tensor, bias: torch.Tensor | None) -> Any:
    """Hand a weight to the kernels that `torch.backends.quantized.engine` names; only packing looks at that."""
    with warnings.catch_warnings():
        # torch 2.13 announces the end of the tensors that packing takes (pytorch issue 184982). No other integer
        # kernel is faster than FP32 on every CPU yet; what is saved is plain int8, so another can take its place.
        warnings.simplefilter("ignore")
        try:
            if scales.shape == (1,):
                weight = torch._make_per_tensor_quantized_tensor(integers, float(scales), 0)
            else:
                zeros = torch.zeros(len(integers), dtype=torch.int64)
                weight = torch._make_per_channel_quantized_tensor(integers, scales.double(), zeros, 0)
            return torch.ops.quantized.linear_prepack(weight, bias)
        except (AttributeError, NotImplementedError, RuntimeError) as error:
            engine = torch.backends.quantized
            raise UserError(
                f"torch {torch.__version__} cannot run INT8 layers here: {str(error).splitlines()[0]}",
                hint=f"torch.backends.quantized.engine is '{engine.engine}'; it can be one of: "
                f"{', '.join(engine.supported_engines)}.",
            ) from error
