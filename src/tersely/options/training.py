"""The usual options of transformers' training, with the defaults that `dynabert` and `qat` train with."""

from __future__ import annotations

from dataclasses import dataclass

from .option import option


@dataclass(frozen=True)
class TrainingOptions:
    """How dynabert and qat train. Every other option of `transformers.TrainingArguments` is taken too, by its name.

    Bounds are checked where a training starts: `training.settings`.
    """

    num_train_epochs: float = option("passes over the training rows", 3.0)
    max_steps: int = option("stop after so many steps", -1, default_text="")
    per_device_train_batch_size: int = option("rows a training step", 8, default_text="8; 16 after prune")
    per_device_eval_batch_size: int = option("rows a batch when scoring what is trained", 8)
    gradient_accumulation_steps: int = option("batches a step", 1)
    learning_rate: float = option("peak learning rate", 5e-5, default_text="5e-5; after prune found")
    weight_decay: float = option("weight decay", 0.0)
    adam_beta1: float = option("AdamW's beta1", 0.9)
    adam_beta2: float = option("AdamW's beta2", 0.999)
    adam_epsilon: float = option("AdamW's epsilon", 1e-8, default_text="1e-8")
    max_grad_norm: float = option("gradients are scaled down to this norm", 1.0)
    warmup_steps: float = option("steps of warm-up, below 1 a share of all", 0, default_text="0; 0.05 after prune")
    warmup_ratio: float = option("steps of warm-up as a share of all steps", 0.0)
    device: str | None = option("where to train: cpu or gpu", default_text="the best there is")
    optim: str = option("adamw, sgd, adafactor …", "adamw")
    lr_scheduler_type: str = option("linear, cosine, constant …", "linear")
    save_steps: int = option("score what is trained every so many steps", 100)
    logging_steps: int = option("how often the loss is taken", 500)
    seed: int = option("seed", 42)
    bf16: bool = option("train in bf16, on CPUs that have it", False, default_text="after prune where it can")
