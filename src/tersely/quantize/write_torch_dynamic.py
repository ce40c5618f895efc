"""Dynamic INT8 for those who stay in torch: a fine-tuned model with integer weights, written as a folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import nn

from .. import __version__
from ..artifact import sha256
from ..atomic import atomic_folder, check_destination
from ..engines.torch import as_tuple, output_names
from ..errors import Failure, UserError, existing
from ..models.folder import NOTES, TOKENIZER_FILES, read_notes
from ..models.load import MANIFEST
from ..models.torch_dynamic import WEIGHTS, DynamicLinear, DynamicManifest, read_dynamic
from ..models.torch_folder import load_module
from .skip import fits
from .targets import FEWEST_OUTPUTS
from .weights import KINDS, check_word, quantize_weight


@dataclass(frozen=True)
class DynamicReport:
    """What was written; `left_float` by layer with a code of `REASONS`; the size of the weights before and after."""

    folder: Path
    layers: tuple[str, ...]
    left_float: Mapping[str, str]
    bytes_before: int
    bytes_after: int


def write_dynamic(
    folder: str | Path,
    output_dir: str | Path,
    *,
    weight_quantize_type: str = "channel_wise_abs_max",
    skip_layers: Sequence[str] = (),
    overwrite: bool = False,
) -> DynamicReport:
    """Write a fine-tuned model with INT8 linear layers; `tersely.load_model` reads it. The source stays as it is.

    The integers are right on every CPU. `skip_layers` are patterns of layers that stay float, as do those with fewer
    than 64 outputs: heads. Embedding tables and norms stay float too. A 6-layer MiniLM takes 2 s.

    >>> write_dynamic("model", "smaller", weight_quantize_type="max")
    Traceback (most recent call last):
    tersely.errors.UserError: There is no 'weight_quantize_type' called 'max'. Did you mean 'abs_max'?
    """
    check_word("weight_quantize_type", weight_quantize_type, KINDS)
    check_destination(output_dir, overwrite=overwrite)
    folder = existing(folder, "model folder")
    if Path(output_dir).resolve() == folder.resolve():
        raise UserError("The output folder is the model's own.", where=str(folder), hint="Choose another --output_dir.")
    module = load_module(folder)
    layers, left_float = _choose(module, [skip_layers] if isinstance(skip_layers, str) else skip_layers, folder)
    _quantize(module, layers, weight_quantize_type)
    with atomic_folder(output_dir, overwrite=overwrite) as scratch:
        for name in ("config.json", *TOKENIZER_FILES):
            if (folder / name).is_file():
                shutil.copyfile(folder / name, scratch / name)
        tensors = {name: tensor.clone() for name, tensor in module.state_dict().items()}  # none may share memory
        (scratch / WEIGHTS).write_bytes(safetensors.torch.save(tensors, metadata={"format": "pt"}))
        # The task travels with the model, and the list of files lets `overwrite` know the folder as Tersely's own.
        names = sorted([NOTES, MANIFEST, *(path.name for path in scratch.iterdir())])
        _write_json(scratch / NOTES, {"task": read_notes(folder), "tersely_version": __version__, "files": names})
        files = {name: sha256(scratch / name) for name in names if name != MANIFEST}
        manifest = DynamicManifest(
            type(module).__name__, weight_quantize_type, layers, left_float, files, tersely_version=__version__
        )
        _write_json(scratch / MANIFEST, asdict(manifest))
        _check_reloaded(module, scratch)
    written = Path(output_dir)
    return DynamicReport(written, layers, left_float, _weight_bytes(folder), (written / WEIGHTS).stat().st_size)


def _choose(module: nn.Module, skip: Sequence[str], folder: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    """The linear layers to quantize, and those that stay float with the reason. (A subclass has its own arithmetic.)"""
    linear = {name: part for name, part in module.named_modules() if type(part) is nn.Linear}
    for pattern in skip:
        if not any(fits(f"{name}.weight", pattern) for name in linear):
            hint = f"Layers have names such as '{next(iter(linear), 'none')}'; patterns take * and ?."
            raise UserError(
                f"No layer fits the pattern '{pattern}' (option '--skip_layers').", hint=hint, option="skip_layers"
            )
    left_float = {}
    for name, layer in linear.items():
        if any(fits(f"{name}.weight", pattern) for pattern in skip):
            left_float[name] = "skipped"
        elif layer.out_features < FEWEST_OUTPUTS:
            left_float[name] = "small"
    layers = tuple(name for name in linear if name not in left_float)
    if not layers:
        raise UserError(f"None of the {len(linear)} linear layers is left to quantize.", where=str(folder))
    return layers, left_float


def _quantize(module: nn.Module, layers: Sequence[str], weight_quantize_type: str) -> None:
    for name in layers:
        layer: Any = module.get_submodule(name)
        quantized = quantize_weight(layer.weight.detach().numpy().T, weight_quantize_type, cpu_classes="all")
        integers = torch.from_numpy(quantized.integers).T.contiguous()
        bias = None if layer.bias is None else layer.bias.detach()
        module.set_submodule(name, DynamicLinear(integers, torch.from_numpy(quantized.scales), bias))


def _check_reloaded(module: nn.Module, folder: Path) -> None:
    """Refuse, before it is in place, a folder that does not give back the model."""
    ids = torch.arange(8)[None] % int(module.config.vocab_size)
    feed = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    names = output_names(module)
    try:
        with torch.inference_mode():
            written, read = (as_tuple(model(**feed), names) for model in (module, read_dynamic(folder)))
            same = all(torch.equal(before, after) for before, after in zip(written, read, strict=True))
    except (AttributeError, TypeError) as error:  # a family that reaches into its layers' weights
        hint = "Leave the layer that it names float, with skip_layers."
        raise Failure(f"The model does not run with INT8 layers: {error}.", hint=hint) from error
    if not same:
        raise Failure("The quantized model that was written is not the one that is read back.", where=str(folder))


def _weight_bytes(folder: Path) -> int:
    files = list(folder.glob("model*.safetensors")) or list(folder.glob("pytorch_model*.bin"))
    return sum(path.stat().st_size for path in files)


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
