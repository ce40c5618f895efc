"""The transformers config of a PaddleNLP model: what Paddle computes, said in transformers' words."""

from __future__ import annotations

from typing import Any

from .checkpoint import FAMILIES, Checkpoint, Sizes

TITLES = {family: title for title, family in FAMILIES.items()}
ACTIVATIONS = {"gelu": "gelu", "relu": "relu", "silu": "silu", "swish": "silu", "tanh": "tanh"}
"""Functions of paddle.nn.functional and the same in transformers."""
TRAINING = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range", "classifier_dropout", "dropout")
"""Settings that only training uses. All but the last have the same names in transformers."""


def make_config(checkpoint: Checkpoint, sizes: Sizes) -> dict[str, Any]:
    """Make the content of config.json; a UserError where transformers would compute something else than Paddle."""
    settings = checkpoint.settings
    heads = settings.get("num_attention_heads", 12)
    if type(heads) is not int or heads < 1 or sizes.hidden_size % heads:
        what = f"'num_attention_heads' must divide the hidden size {sizes.hidden_size}. Got {heads!r}."
        raise checkpoint.bad_config(what, "Write the number that the model was trained with.")
    activation = settings.get("hidden_act", "gelu")
    if activation not in ACTIVATIONS:
        what = f"'hidden_act' must be one of {', '.join(ACTIVATIONS)}. Got {activation!r}."
        raise checkpoint.bad_config(what, "transformers has no activation that is surely the same.")
    pad = settings.get("pad_token_id", 0)
    if type(pad) is not int or not 0 <= pad < sizes.vocab_size:
        what = f"'pad_token_id' must be a row of the table, 0 to {sizes.vocab_size - 1}. Got {pad!r}."
        raise checkpoint.bad_config(what, "Write the number that the model was trained with.")
    _refuse_what_differs(checkpoint, activation)
    config: dict[str, Any] = {
        "architectures": [TITLES[sizes.target] + (f"For{checkpoint.head}" if checkpoint.head else "Model")],
        "model_type": sizes.target,
        "vocab_size": sizes.vocab_size,
        "hidden_size": sizes.hidden_size,
        "num_hidden_layers": sizes.num_hidden_layers,
        "num_attention_heads": heads,
        "intermediate_size": sizes.intermediate_size,
        "hidden_act": ACTIVATIONS[activation],
        "max_position_embeddings": sizes.max_position_embeddings,
        "type_vocab_size": sizes.type_vocab_size or 2,
        "layer_norm_eps": _epsilon(checkpoint),
        "pad_token_id": pad,
        "dtype": "float32",
    }
    if sizes.target == "electra":
        config["embedding_size"] = sizes.embedding_size
    if sizes.target == "ernie":
        tasks = sizes.task_type_vocab_size
        config |= {"use_task_id": bool(tasks), "task_type_vocab_size": tasks or 3}
    for name in TRAINING:
        if isinstance(settings.get(name), float | int):
            config["classifier_dropout" if name == "dropout" else name] = settings[name]
    return {**config, **_labels(checkpoint, sizes)}


def _epsilon(checkpoint: Checkpoint) -> float:
    """ERNIE sets 1e-12 whatever its config says; so did ELECTRA's heads before their configs had classes."""
    if checkpoint.family == "ernie" or (checkpoint.family == "electra" and checkpoint.nested and checkpoint.head):
        return 1e-12
    epsilon = checkpoint.settings.get("layer_norm_eps", 1e-12)
    if not isinstance(epsilon, float | int):
        raise checkpoint.bad_config(
            f"'layer_norm_eps' must be a number. Got {epsilon!r}.", "PaddleNLP's default is 1e-12."
        )
    return float(epsilon)


def _refuse_what_differs(checkpoint: Checkpoint, activation: str) -> None:
    settings, pooled = checkpoint.settings, checkpoint.answers_for in (None, "row")
    if checkpoint.family == "bert" and pooled and settings.get("pool_act", "tanh") != "tanh":
        what = f"'pool_act' must be 'tanh': transformers has no other. Got {settings['pool_act']!r}."
        raise checkpoint.bad_config(what, "Fine-tune the model anew with tanh.")
    if checkpoint.family == "ernie" and settings.get("use_task_id") and settings.get("task_id", 0) != 0:
        what = f"'task_id' must be 0, which transformers takes where none is given. Got {settings['task_id']!r}."
        raise checkpoint.bad_config(what, "Fine-tune the model anew with task 0.")
    if checkpoint.family == "electra" and checkpoint.answers_for == "row":
        inside = settings.get("activation", "gelu") if checkpoint.nested else activation
        if inside != "gelu":
            what = (
                f"The activation of the classification head must be 'gelu': transformers has no other. Got {inside!r}."
            )
            raise checkpoint.bad_config(what, "Fine-tune the model anew with gelu.")


def _labels(checkpoint: Checkpoint, sizes: Sizes) -> dict[str, Any]:
    if checkpoint.answers_for in (None, "span"):
        return {}
    settings = checkpoint.settings
    names = settings.get("id2label") or {i: f"LABEL_{i}" for i in range(sizes.labels)}
    try:
        numbered = {int(number): str(name) for number, name in names.items()}
    except (AttributeError, ValueError):
        numbered = {}
    if sorted(numbered) != list(range(sizes.labels)):
        what = (
            f"'id2label' must name the labels 0 to {sizes.labels - 1}, which the classifier has. Got {str(names)[:60]}."
        )
        raise checkpoint.bad_config(what, "Name every label by its number, or take the entry out.")
    ordered = [numbered[i] for i in range(sizes.labels)]
    labels: dict[str, Any] = {
        "id2label": {str(i): name for i, name in enumerate(ordered)},
        "label2id": {name: i for i, name in enumerate(ordered)},
    }
    if checkpoint.answers_for == "row" and isinstance(settings.get("problem_type"), str):
        labels["problem_type"] = settings["problem_type"]
    return labels
