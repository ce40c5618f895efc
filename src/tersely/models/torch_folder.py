"""A transformers folder as a torch module, loaded with every check that can be made."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars
from torch import nn

from ..errors import UserError, existing, nearest
from ..tasks import heads
from .carve.model import model_class

_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")


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
            module, report = with_weights(kind, config, folder)
        except UserError:
            raise
        except Exception as error:  # transformers, safetensors and torch.load each raise kinds of their own
            raise cannot_load("The model", folder, error) from error
    missing = sorted(report["missing_keys"])
    if missing and head is None:
        what = f"The weights lack '{missing[0]}'" + (f" and {len(missing) - 1} more." if len(missing) > 1 else ".")
        hint = "The folder does not hold the fine-tuned model that its config.json describes."
        raise UserError(what, where=str(folder), hint=hint)
    check_finite(module, str(folder))
    return module.eval()


def with_weights(kind: Any, config: Any, folder: str | Path | None, **more: Any) -> tuple[Any, dict[str, Any]]:
    """A model of a class of transformers, carved where its config says so, in FP32; and what its loading reports."""
    return model_class(kind, config).from_pretrained(  # type: ignore[no-any-return]
        folder, config=config, dtype=torch.float32, local_files_only=True, trust_remote_code=False,
        weights_only=True, output_loading_info=True, **more,
    )  # fmt: skip


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
            what = f"The weight '{name}' holds {'NaN' if bool(torch.isnan(parameter).any()) else 'infinite values'}."
            raise UserError(what, where=where, hint="Training diverged; use an earlier checkpoint.")


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence transformers' progress bars, load reports and warnings for a while, and put all of it back."""
    log = transformers.utils.logging
    # It says one harmless thing twice (HF_HUB_DISABLE_PROGRESS_BARS set by the user): not ours to pass on.
    with warnings.catch_warnings(), ExitStack() as restored:
        warnings.simplefilter("ignore")
        restored.callback(log.set_verbosity, log.get_verbosity())
        if log.is_progress_bar_enabled():
            if are_progress_bars_disabled():  # transformers turns the Hub's on with its own
                restored.callback(disable_progress_bars)
            restored.callback(log.enable_progress_bar)
        log.set_verbosity(logging.CRITICAL)
        log.disable_progress_bar()
        yield


def _checked_folder(folder: str | Path) -> Path:
    folder = existing(folder, "model folder")
    if not folder.is_dir():
        raise UserError("This is a file; a model folder is expected.", where=str(folder))
    if not (folder / "config.json").is_file():
        raise UserError("The model folder has no config.json.", where=str(folder))
    if not any((folder / name).is_file() for name in _WEIGHTS):
        hint = f"Looked for {_WEIGHTS[0]} and {_WEIGHTS[2]}."
        raise UserError("The model folder has no weights.", where=str(folder), hint=hint)
    return folder


def _head(config: Any, head: str | None, folder: Path) -> str:
    if head is not None:
        if head not in heads():
            raise UserError(f"There is no head '{head}'.", hint=nearest(head, heads()))
        return head
    architecture = next(iter(config.architectures or ()), "none")
    found = next((name for name in heads() if architecture.endswith(f"For{name}")), None)
    if found is None:
        what = f"The model's architecture is '{architecture}', which has no head that is offered."
        hint = f"Fine-tune it first; heads: {', '.join(heads())}."
        raise UserError(what, where=str(folder / "config.json"), hint=hint)
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
