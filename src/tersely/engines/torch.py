"""PyTorch: a live module, or a transformers folder loaded with every check that can be made."""

from __future__ import annotations

import inspect
import json
import logging
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast, final

import numpy as np
import torch
import transformers
from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars
from torch import nn

from ..carve.model import model_class
from ..errors import UserError, existing, nearest
from ..tasks import TASKS, heads
from .cpu import threads_or_all
from .engine import INPUTS, Batch, Outputs, pick

INPUT_NAMES, OUTPUT_NAMES = "tersely_inputs", "tersely_outputs"
"""Attributes of a module that say what it takes and gives, where its class does not: a live model of the user's."""

_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
_threads_lock = threading.Lock()


@final
class TorchEngine:
    """A torch model, run in eval mode; a live module is left as it was after each run."""

    name = "torch"

    def __init__(
        self,
        model: str | Path | nn.Module,
        *,
        threads: int | None = None,
        precision: str = "fp32",
        inputs: tuple[str, ...] | None = None,
        outputs: tuple[str, ...] | None = None,
    ) -> None:
        self.precision = precision
        self.threads = threads_or_all(threads)
        self._module: nn.Module = model if isinstance(model, nn.Module) else load_module(model)
        self.inputs = inputs or input_names(self._module)
        self.outputs = outputs or output_names(self._module)

    def run(self, batch: Batch) -> Outputs:
        """Inputs [rows, length] to logits, on the module's own device."""
        device = next((parameter.device for parameter in self._module.parameters()), torch.device("cpu"))
        feed = {
            name: torch.from_numpy(np.ascontiguousarray(array, dtype=np.int64)).to(device)
            for name, array in pick(batch, self.inputs).items()
        }
        with torch_threads(self.threads), evaluating(self._module), torch.inference_mode():
            outputs = as_tuple(self._module(**feed), self.outputs)
        return tuple(output.float().cpu().numpy() for output in outputs)


def input_names(module: nn.Module) -> tuple[str, ...]:
    """Which of the usual inputs make a difference to the model.

    RoBERTa and its kin name `token_type_ids` in forward but have one segment (a tokenizer's 1 would be out of range);
    DeBERTa-v2 as published has none at all. `type_vocab_size` tells; DistilBERT, MPNet, ModernBERT do not name it.
    """
    if (stated := getattr(module, INPUT_NAMES, None)) is not None:
        return tuple(stated)
    named = inspect.signature(module.forward).parameters
    segments = getattr(getattr(module, "config", None), "type_vocab_size", None)
    wanted = [name for name in INPUTS if name in named]
    return tuple(name for name in wanted if name != "token_type_ids" or segments is None or segments > 1)


def output_names(module: nn.Module) -> tuple[str, ...]:
    """Names of the outputs of a transformers model, by its head."""
    if (stated := getattr(module, OUTPUT_NAMES, None)) is not None:
        return tuple(stated)
    task = next((task for head, task in heads().items() if type(module).__name__.endswith(head)), None)
    return ("logits",) if task is None else cast(tuple[str, ...], TASKS[task].outputs)


def as_tuple(output: Any, names: Sequence[str]) -> tuple[torch.Tensor, ...]:
    """What a forward gave (a tensor, a tuple, transformers' named outputs) as the tensors of these names."""
    if isinstance(output, torch.Tensor):
        return (output,)
    if isinstance(output, dict):
        return tuple(output[name] for name in names) if all(n in output for n in names) else tuple(output.values())
    # A model set to give tuples puts hidden states behind its logits; two or more plain tensors are the outputs.
    return tuple(value for value in output if isinstance(value, torch.Tensor))


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a module in eval mode, and each part of it back to its own mode afterwards."""
    training = [part for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Let torch use so many threads for a while. The count is the process's, so only one may hold it."""
    with _threads_lock:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def load_module(folder: str | Path, *, head: str | None = None, kind: Any = None) -> Any:
    """Load a transformers folder in FP32, eval mode; runs no code of the folder's and unpickles nothing but tensors.

    `head`: one of `tasks.heads`, where the model has another or none (new weights are drawn for it from torch's
    generator); None takes the one that the folder names, and then every weight must be there. `kind`: the model's
    class, where transformers has it not. A carved model comes as small as it was saved.
    """
    folder = _checked_folder(folder)
    with quiet_transformers():
        try:
            config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            kind = kind or getattr(transformers, f"AutoModelFor{_head(config, head, folder)}")
            module, report = model_class(kind, config).from_pretrained(
                folder, config=config, dtype=torch.float32, local_files_only=True, trust_remote_code=False,
                weights_only=True, output_loading_info=True,
            )  # fmt: skip
        except UserError:
            raise
        except Exception as error:  # transformers, safetensors and torch.load each raise kinds of their own
            raise cannot_load("The model", folder, error) from error
    missing = sorted(report["missing_keys"])
    if missing and head is None:
        raise UserError(
            f"The weights lack '{missing[0]}'" + (f" and {len(missing) - 1} more." if len(missing) > 1 else "."),
            where=str(folder),
            hint="The folder does not hold the fine-tuned model that its config.json describes.",
        )
    check_finite(module, str(folder))
    return module.eval()


def cannot_load(what: str, folder: str | Path, error: Exception) -> UserError:
    """Say in one line why transformers did not load a part of a folder."""
    if _needs_its_code(Path(folder)):  # transformers then tells to set an option that nobody has here
        line = "it needs code that the folder names ('auto_map'). Tersely runs no code of a model folder."
    else:
        line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return UserError(f"{what} cannot be loaded: {line}", where=str(folder))


def check_finite(module: nn.Module, where: str | None = None) -> None:
    """Refuse a model with NaN or infinite weights, naming the first."""
    for name, parameter in module.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            kind = "NaN" if bool(torch.isnan(parameter).any()) else "infinite values"
            raise UserError(
                f"The weight '{name}' holds {kind}.", where=where, hint="Training diverged; use an earlier checkpoint."
            )


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence transformers' progress bars, load reports and warnings for a while, and put all of it back."""
    log = transformers.utils.logging
    verbosity, bars, hub_bars = log.get_verbosity(), log.is_progress_bar_enabled(), not are_progress_bars_disabled()
    log.set_verbosity(logging.CRITICAL)
    # It says one harmless thing twice (HF_HUB_DISABLE_PROGRESS_BARS set by the user): not ours to pass on.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log.disable_progress_bar()
        try:
            yield
        finally:
            log.set_verbosity(verbosity)
            if bars:
                log.enable_progress_bar()
            if bars and not hub_bars:
                disable_progress_bars()


def _checked_folder(folder: str | Path) -> Path:
    folder = existing(folder, "model folder")
    if not folder.is_dir():
        raise UserError("This is a file; a model folder is expected.", where=str(folder))
    if not (folder / "config.json").is_file():
        raise UserError("The model folder has no config.json.", where=str(folder))
    if not any((folder / name).is_file() for name in _WEIGHTS):
        raise UserError(
            "The model folder has no weights.", where=str(folder), hint=f"Looked for {_WEIGHTS[0]} and {_WEIGHTS[2]}."
        )
    return folder


def _head(config: Any, head: str | None, folder: Path) -> str:
    if head is not None:
        if head not in heads():
            raise UserError(f"There is no head '{head}'.", hint=nearest(head, heads()))
        return head
    architecture = next(iter(config.architectures or ()), "none")
    found = next((name for name in heads() if architecture.endswith(f"For{name}")), None)
    if found is None:
        raise UserError(
            f"The model's architecture is '{architecture}', which has no head that is offered.",
            where=str(folder / "config.json"),
            hint=f"Fine-tune it first; heads: {', '.join(heads())}.",
        )
    return found


def _needs_its_code(folder: Path) -> bool:
    """Whether transformers does not know the kind of model and the folder names classes of its own."""
    config, tokenizer = (_read_json(folder / name) for name in ("config.json", "tokenizer_config.json"))
    known = str(config.get("model_type")) in transformers.CONFIG_MAPPING
    return not known and ("auto_map" in config or "auto_map" in tokenizer)


def _read_json(place: Path) -> dict[str, Any]:
    try:
        content = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
