"""Sections of AutoCompression's files, key by key."""

from __future__ import annotations

from collections.abc import Mapping

from ...strategy import DYNABERT, PTQ, QAT
from .rules import Rule, graph, idle, inside, only, reconstruct, single, to, width, words

OPTIMIZERS = {"AdamW": "adamw", "SGD": "sgd", "Adagrad": "adagrad", "RMSProp": "rmsprop"}
SCHEDULES = {"CosineAnnealingDecay": "cosine", "PolynomialDecay": "polynomial"}
PADDLE = "it names parts of a Paddle graph"
ELSEWHERE = "it is for other engines or devices"

_BITS = only("8", hint="INT8 is what engines run.")
_QUANTIZED: dict[str, Rule] = {
    "weight_bits": _BITS,
    "activation_bits": _BITS,
    "weight_quantize_type": to("weight_quantize_type"),
    "activation_quantize_type": to("activation_quantize_type"),
    "quantize_op_types": idle("every weighted matmul is quantized"),
    "is_full_quantize": idle(ELSEWHERE),
    "onnx_format": idle("graphs are always ONNX"),
}
_TRAINED = _QUANTIZED | {
    "use_pact": to("use_pact"),
    "moving_rate": to("moving_rate"),
    "not_quant_pattern": idle(PADDLE),
    "window_size": idle("ranges are taken over all steps"),
    "dtype": only("int8", hint="INT8 is what engines run."),
    "for_tensorrt": idle(ELSEWHERE),
}
_CALIBRATED = _QUANTIZED | {
    "algo": to("algo_list"),
    "batch_size": to("batch_size_list"),
    "batch_nums": to("batch_num_list"),
    "bias_correction": to("bias_correction"),
    "round_type": to("round_type"),
    "recon_level": reconstruct,
    "hist_percent": idle("hist takes the 0.9999 quantile"),
    "epochs": idle("learnt rounding has its own schedule"),
    "lr": idle("learnt rounding has its own schedule"),
    "simulate_activation_quant": idle("learnt rounding always sees quantized inputs"),
    "regions": idle(PADDLE),
    "region_weights_names": idle(PADDLE),
    "skip_tensor_list": idle(PADDLE),
}
_OPTIMIZER: dict[str, Rule] = {
    "type": words("optim", OPTIMIZERS),
    "beta1": to("adam_beta1"),
    "beta2": to("adam_beta2"),
    "epsilon": to("adam_epsilon"),
}
_DECAY: dict[str, Rule] = {"weight_decay": to("weight_decay")}
_PRUNED: dict[str, Rule] = {"pruned_ratio": width}
_TEACHER: dict[str, Rule] = {
    "teacher_model_dir": to("teacher_model_name_or_path"),
    "teacher_model_filename": idle(PADDLE),
    "teacher_params_filename": idle(PADDLE),
    "alpha": single("distill_logits"),
    "loss": idle("answers are compared by soft cross-entropy, hidden states by squared error"),
    "node": idle(PADDLE),
    "distill_lambda": single("distill_logits"),
    "distill_loss": idle("answers are compared by soft cross-entropy, hidden states by squared error"),
    "distill_node_pair": idle(PADDLE),
    "merge_feed": idle(PADDLE),
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
        "origin_metric": to("origin_metric"),
        "target_metric": to("target_metric"),
        "amp_config": idle("see --bf16"),
        "recompute_config": idle(ELSEWHERE),
        "sharding_config": idle(ELSEWHERE),
        "sparse_model": idle(ELSEWHERE),
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
    "ChannelPrune": _NO_SECTION,
    "UnstructurePrune": _NO_SECTION,
    "ASPPrune": _NO_SECTION,
    "MultiTeacherDistillation": "Name one teacher under 'Distillation'.",
}
"""Every section: how its keys are read, or why it cannot be."""
METHODS = {
    "TransformerPrune": DYNABERT,
    "Prune": DYNABERT,
    "Quantization": QAT,
    "QuantAware": QAT,
    "QuantPost": PTQ,
    "QuantPtq": PTQ,
    "HyperParameterOptimization": PTQ,
}
"""The sections that ask for a step."""
