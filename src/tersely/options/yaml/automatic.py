"""AutoCompression's files: sections that ask for methods, each with settings of its own, as options.

A key is read by a rule, which is made by a function that says what it means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path

from ...errors import UserError, nearest
from ...strategy import DYNABERT, PTQ, QAT
from .document import Config, Item

Rule = Callable[[Item], None]


def read_sections(parts: Mapping[str, Item], config: Config) -> None:
    """Read all sections; those that ask for a method make the strategy."""
    for section, item in parts.items():
        rules = SECTIONS[section]
        if isinstance(rules, str):
            raise item.error(f"'{section}' is not offered.", rules)
        inside(rules)(item)
    _join(parts, config)
    _aim(config)
    if steps := _steps(parts):
        next(item for section, item in parts.items() if section in METHODS).put("strategy", "+".join(steps))


def _steps(parts: Mapping[str, Item]) -> list[str]:
    """The steps that a file names. A search over calibrations takes `Quantization`'s bits and trains nothing."""
    searches = "HyperParameterOptimization" in parts
    methods = [METHODS[section] for section in parts if section in METHODS]
    steps = list(dict.fromkeys(PTQ if searches and step == QAT else step for step in methods))
    if {PTQ, QAT} <= set(steps):
        item = next(parts[section] for section in parts if METHODS.get(section) == QAT)
        what = f"'{item.key}' stands beside a section of calibration, of which a strategy has one."
        raise item.error(what, "Leave one of them out.")
    return steps


def _join(parts: Mapping[str, Item], config: Config) -> None:
    """Put together what is said in two places."""
    settings = config.settings
    collection = parts["Global"].inner().get("dataset") if "Global" in parts else None
    task, graph, model = (settings.get(name) for name in ("dataset", "input_infer_model_path", "model_name_or_path"))
    if task and collection and collection.entry.text is not None:  # one name: `clue afqmc`
        settings["dataset"] = replace(task, words=(f"{collection.entry.text} {task.words[0]}",))
    if graph and model:  # a graph lies in the model's folder
        settings[graph.option] = replace(graph, words=(str(Path(model.words[0]) / graph.words[0]),))
    teacher = settings.get("teacher_model_name_or_path")
    if teacher and model and Path(teacher.words[0]) == Path(model.words[0]):  # it is its own teacher anyway
        del settings[teacher.option]


def _aim(config: Config) -> None:
    """A score to reach is a drop that is allowed, measured from the score that the model is said to have."""
    target, origin = config.settings.pop("target_metric", None), config.settings.get("origin_metric")
    if target is None:
        return
    if origin is None:
        hint = "Write 'origin_metric' beside it, or say --max_drop instead."
        raise UserError("'target_metric' needs the score to start from.", where=target.where, hint=hint)
    try:
        drop = Decimal(origin.words[0]) - Decimal(target.words[0])
    except InvalidOperation:
        raise UserError("'origin_metric' and 'target_metric' must be numbers.", where=target.where) from None
    if drop < 0:
        what = f"'target_metric' ({target.words[0]}) is above 'origin_metric' ({origin.words[0]})."
        raise UserError(what, where=target.where, hint="Leave it out to get the best there is.")
    config.settings["max_drop"] = replace(target, option="max_drop", words=(str(drop),))


def inside(rules: Mapping[str, Rule], otherwise: Rule | None = None) -> Rule:
    """Keys of its own; `otherwise`: what a plain value is."""

    def rule(item: Item) -> None:
        if otherwise is not None and not isinstance(item.entry.value, Mapping):
            otherwise(item)
            return
        for name, inner in item.inner().items():
            if name not in rules:
                raise inner.error(f"There is no '{name}' in '{item.key}'.", nearest(name, rules))
            rules[name](inner)

    return rule


def to(*options: str) -> Rule:
    """The same under another name."""

    def rule(item: Item) -> None:
        for option in options:
            item.put(option)

    return rule


def same(*options: str) -> dict[str, Rule]:
    """Options that have the same name."""
    return {option: to(option) for option in options}


def idle(reason: str) -> Rule:
    """Means nothing here."""
    return lambda item: item.leave(reason)


def all_idle(reason: str, *keys: str) -> dict[str, Rule]:
    """Keys that mean nothing here."""
    return dict.fromkeys(keys, idle(reason))


def only(*allowed: str, hint: str) -> Rule:
    """Must be one of some words, or not be there."""

    def rule(item: Item) -> None:
        if item.word is not None and item.word not in allowed:
            raise item.error(f"'{item.key}' must be {' or '.join(allowed)}. Got '{item.word}'.", hint)

    return rule


def words(option: str, known: Mapping[str, str]) -> Rule:
    """A word of theirs for a word of ours."""

    def rule(item: Item) -> None:
        if item.word is not None and item.word not in known:
            raise item.error(f"'{item.key}' cannot be '{item.word}'.", nearest(item.word, known))
        if item.word is not None:
            item.put(option, known[item.word])

    return rule


def single(option: str) -> Rule:
    """A list of what to try, of which there can be one here."""

    def rule(item: Item) -> None:
        found = item.words or ()
        if len(found) == 1:
            item.put(option)
        elif found:
            item.leave("one value is used for all candidates")

    return rule


def graph(item: Item) -> None:
    """A graph of ONNX is one that can be compressed; of Paddle's the model folder stands in its place."""
    if item.word is not None and item.word.endswith(".onnx"):
        item.put("input_infer_model_path")
    else:
        item.leave("Paddle graphs are not read: name a transformers folder")


def width(item: Item) -> None:
    """What is left of a ratio that is pruned."""
    shares = []
    for word in item.words or ():
        try:
            share = 1 - Fraction(word)
        except (ValueError, ZeroDivisionError):
            share = Fraction(0)
        if not 0 < share < 1:
            raise item.error(f"'{item.key}' must be between 0 and 1. Got '{word}'.")
        shares.append(str(share))
    if shares:
        item.put("width_mult_list", *shares)


def reconstruct(item: Item) -> None:
    """Layers that are fitted to their outputs: what `adaround` does."""
    only("layer-wise", hint="Rounding is learnt layer by layer.")(item)
    if item.word is not None:
        item.put("round_type", "adaround")


OPTIMIZERS = {"AdamW": "adamw", "SGD": "sgd", "Adagrad": "adagrad", "RMSProp": "rmsprop"}
SCHEDULES = {"CosineAnnealingDecay": "cosine", "PolynomialDecay": "polynomial"}
PADDLE = "it names parts of a Paddle graph"
ELSEWHERE = "it is for other engines or devices"

_BITS = only("8", hint="INT8 is what engines run.")
_QUANTIZED: dict[str, Rule] = {
    "weight_bits": _BITS,
    "activation_bits": _BITS,
    **same("weight_quantize_type", "activation_quantize_type"),
    "quantize_op_types": idle("every weighted matmul is quantized"),
    "is_full_quantize": idle(ELSEWHERE),
    "onnx_format": idle("graphs are always ONNX"),
}
_TRAINED = _QUANTIZED | {
    **same("use_pact", "moving_rate"),
    "not_quant_pattern": idle(PADDLE),
    "window_size": idle("ranges are taken over all steps"),
    "dtype": only("int8", hint="INT8 is what engines run."),
    "for_tensorrt": idle(ELSEWHERE),
}
_CALIBRATED = _QUANTIZED | {
    "algo": to("algo_list"),
    "batch_size": to("batch_size_list"),
    "batch_nums": to("batch_num_list"),
    **same("bias_correction", "round_type"),
    "recon_level": reconstruct,
    "hist_percent": idle("hist takes the 0.9999 quantile"),
    **all_idle("learnt rounding has its own schedule", "epochs", "lr"),
    "simulate_activation_quant": idle("learnt rounding always sees quantized inputs"),
    **all_idle(PADDLE, "regions", "region_weights_names", "skip_tensor_list"),
}
_OPTIMIZER: dict[str, Rule] = {
    "type": words("optim", OPTIMIZERS),
    "beta1": to("adam_beta1"),
    "beta2": to("adam_beta2"),
    "epsilon": to("adam_epsilon"),
}
_DECAY = same("weight_decay")
_PRUNED: dict[str, Rule] = {"pruned_ratio": width}
_TEACHER: dict[str, Rule] = {
    "teacher_model_dir": to("teacher_model_name_or_path"),
    **all_idle(PADDLE, "teacher_model_filename", "teacher_params_filename"),
    "alpha": single("distill_logits"),
    "loss": idle("answers are compared by soft cross-entropy, hidden states by squared error"),
    "node": idle(PADDLE),
    "distill_lambda": single("distill_logits"),
    "distill_loss": idle("answers are compared by soft cross-entropy, hidden states by squared error"),
    **all_idle(PADDLE, "distill_node_pair", "merge_feed"),
}
_NO_SECTION = "Pruning of encoders is 'TransformerPrune' here; leave this out."

SECTIONS: dict[str, Mapping[str, Rule] | str] = {
    "Global": {
        "model_dir": to("model_name_or_path"),
        "model_filename": graph,
        "params_filename": idle(PADDLE),
        "task_name": to("dataset"),
        "dataset": only("clue", "glue", hint="Other data: name files with train_data and dev_data."),
        "batch_size": to("per_device_train_batch_size", "per_device_eval_batch_size"),
        "max_seq_length": to("max_seq_length"),
        "train_data": to("train_file"),
        "dev_data": to("eval_file"),
    },
    "TrainConfig": {
        "epochs": to("num_train_epochs"),
        "train_iter": to("max_steps"),
        "eval_iter": to("save_steps"),
        "logging_iter": to("logging_steps"),
        "learning_rate": inside(
            {
                "type": words("lr_scheduler_type", SCHEDULES),
                "learning_rate": to("learning_rate"),
                "T_max": idle("the schedule ends with the training"),
            },
            to("learning_rate"),
        ),
        "optimizer_builder": inside({"optimizer": inside(_OPTIMIZER), **_DECAY}),
        "optimizer": words("optim", OPTIMIZERS),
        "optim_args": inside(_DECAY),
        **same("origin_metric", "target_metric"),
        "amp_config": idle("see --bf16"),
        **all_idle(ELSEWHERE, "recompute_config", "sharding_config", "sparse_model"),
        "use_fleet": idle("use torchrun"),
    },
    "Distillation": _TEACHER,
    "TransformerPrune": _PRUNED,
    "Prune": _PRUNED
    | {
        "prune_algo": only("transformer_pruner", hint="The others are for convolutions."),
        "prune_params_name": idle(PADDLE),
        "criterion": idle("what matters is found by first-order importance"),
    },
    "Quantization": _TRAINED,
    "QuantAware": _TRAINED,
    "QuantPost": _CALIBRATED,
    "QuantPtq": _CALIBRATED,
    "HyperParameterOptimization": {
        "ptq_algo": to("algo_list"),
        "bias_correct": single("bias_correction"),
        "weight_quantize_type": single("weight_quantize_type"),
        "batch_num": to("batch_num_list"),
        "hist_percent": idle("hist takes the 0.9999 quantile"),
        "max_quant_count": idle("every candidate is tried"),
    },
    **dict.fromkeys(("ChannelPrune", "UnstructurePrune", "ASPPrune"), _NO_SECTION),
    "MultiTeacherDistillation": "Name one teacher under 'Distillation'.",
}
"""Every section: how its keys are read, or why it cannot be."""
METHODS = {
    **dict.fromkeys(("TransformerPrune", "Prune"), DYNABERT),
    **dict.fromkeys(("Quantization", "QuantAware"), QAT),
    **dict.fromkeys(("QuantPost", "QuantPtq", "HyperParameterOptimization"), PTQ),
}
"""The sections that ask for a step."""
