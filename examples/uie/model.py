"""The extractor: an encoder, and for each token the chance that an answer starts there, and that one ends there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModel, AutoTokenizer, PretrainedConfig, PreTrainedModel

from tersely import UserError, load_model
from tersely.models.torch_folder import quiet_transformers

RARE = -4.0
"""Where a new pointer's bias begins: a chance of one in 55, about how often answers start. From one half, the first
hundred steps would learn nothing else."""


class UIE(PreTrainedModel):
    """Reads `[CLS] prompt [SEP] text [SEP]`; any encoder that takes `token_type_ids` does."""

    config_class = PretrainedConfig
    base_model_prefix = "encoder"

    def __init__(self, config: Any, encoder: nn.Module | None = None) -> None:
        super().__init__(config)
        self.encoder = AutoModel.from_config(config) if encoder is None else encoder
        if hasattr(self.encoder, "pooler"):
            self.encoder.pooler = None  # nothing reads it; not every encoder can be made without
        self.linear_start = nn.Linear(config.hidden_size, 1)
        self.linear_end = nn.Linear(config.hidden_size, 1)
        self.post_init()

    def forward(self, input_ids: Any, token_type_ids: Any = None, attention_mask: Any = None) -> Any:
        """Chances of starts and of ends, [rows, length] each; 0 at padding, which is never an answer."""
        states = self.encoder(input_ids, token_type_ids=token_type_ids, attention_mask=attention_mask)[0]
        chances = [torch.sigmoid(side(states)).squeeze(-1) for side in (self.linear_start, self.linear_end)]
        return tuple(
            chance if attention_mask is None else chance * attention_mask.to(chance.dtype) for chance in chances
        )


def criterion(outputs: Any, labels: Any) -> torch.Tensor:
    """Binary cross-entropy of starts and of ends, as UIE is trained."""
    start, end = (
        nn.functional.binary_cross_entropy(output.float(), label.float())
        for output, label in zip(outputs, labels, strict=True)
    )
    return (start + end) / 2


def open_uie(folder: str) -> tuple[UIE, Any]:
    """A fine-tuned extractor, or a new one over an encoder; with its tokenizer."""
    if not (Path(folder) / "config.json").is_file():
        what = "There is no such model folder." if not Path(folder).is_dir() else "The folder has no config.json."
        raise UserError(what, where=folder, hint="Name an encoder's folder, or one that --do_train wrote.")
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    if UIE.__name__ in (config.architectures or ()):
        return load_model(folder, UIE), tokenizer
    with quiet_transformers():  # a head that the encoder was trained with is not missed
        encoder = AutoModel.from_pretrained(folder, local_files_only=True)
    model = UIE(config, encoder)
    for side in (model.linear_start, model.linear_end):
        nn.init.constant_(side.bias, RARE)
    return model, tokenizer
