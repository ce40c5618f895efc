"""The same flags come to the same run, through `tersely compress` and through `CompressionArguments`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tersely import CompressionArguments, PdArgumentParser
from tersely.cli import parser_of
from tersely.cli.compress import request
from tersely.compression.divide import Data
from tersely.compression.request import Request
from tersely.paddle_api.arguments import request_of
from tersely.prune.dynabert import pruning_arguments


def by_command(words: list[str]) -> Request:
    parser, _ = parser_of("compress")
    arguments, arguments.rest = parser.parse_known_args(words)
    arguments.command_line = words
    return request(arguments)


def by_script(words: list[str]) -> Request:
    (arguments,) = PdArgumentParser(CompressionArguments).parse_args_into_dataclasses(words)
    return request_of(arguments)


def effective(run: Request) -> dict[str, Any]:
    return dict(pruning_arguments(run.training, Path("-"), run.options.seed).to_dict())


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--strategy dynabert --width_mult_list 3/4 1/2 --num_train_epochs 1 --learning_rate 1e-4",
        "--strategy ptq --strategy dynabert+ptq --algo_list mse hist --batch_size_list 4 8 --batch_num_list 1 None",
        "--strategy dynabert,embeddings --optim adamw --warmup_ratio 0.1 --device cpu",
        "--warmup_steps 10 --weight_decay 0.01 --lr_scheduler_type cosine --max_steps 50 --save_steps 20",
        "--gradient_accumulation_steps 4 --per_device_train_batch_size 2 --per_device_eval_batch_size 3",
        "--adam_beta1 0.8 --max_grad_norm 0.5 --adam_epsilon 1e-6 --optim sgd --logging_steps 7",
        "--label_loss 1 --distill_hidden 0 --importance teacher --importance_rows 64 --depth_mult_list 2/3",
        "--seed 7 --resume_from_checkpoint false --overwrite_output_dir --max_seq_length 64 --metric f1",
        "--resume_from_checkpoint true --teacher_model_name_or_path t --max_drop 0.01 --origin_metric 0.8",
        "--calibration_rows 128 --smooth 0.5 --quantize_attention on --skip_layers *pooler* --input_dtype int32",
    ],
)
def test_flags_mean_the_same_in_scripts_and_in_the_command(words: str) -> None:
    line = ["--output_dir", "out", *words.split()]
    command, script = by_command(line), by_script(line)
    assert script.options == command.options
    assert script.task_options == command.task_options
    assert script.set_options == command.set_options
    assert script.output_dir == command.output_dir == "out"
    assert script.overwrite == command.overwrite
    assert effective(script) == effective(command)


def test_what_was_not_set_is_left_to_compression() -> None:
    assert request_of(CompressionArguments("out")) == Request(None, "out", Data())


def test_defaults_are_those_that_pruning_runs_with() -> None:
    arguments, real = CompressionArguments("out"), effective(request_of(CompressionArguments("out")))
    for name in (
        "learning_rate", "num_train_epochs", "max_steps", "per_device_train_batch_size", "per_device_eval_batch_size",
        "save_steps", "logging_steps", "weight_decay", "warmup_steps", "optim", "lr_scheduler_type", "seed",
        "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm", "gradient_accumulation_steps", "use_cpu",
    ):  # fmt: skip
        assert real[name] == arguments.to_dict()[name], name


def test_options_of_train_are_no_business_of_compression() -> None:
    arguments = CompressionArguments(
        "out", strategy="dynabert", do_train=True, do_compress=True, remove_unused_columns=False, label_names=["a"],
        eval_strategy="steps", eval_steps=10, load_best_model_at_end=True, save_total_limit=2, learning_rate=1e-3,
    )  # fmt: skip
    assert request_of(arguments).training == {"learning_rate": 1e-3}
    arguments.strategy = "ptq"
    assert request_of(arguments).training == {}
    arguments.resume_from_checkpoint = "out/checkpoint-100"
    assert request_of(arguments).options.resume_from_checkpoint is True
    assert request_of(arguments).set_options == {"strategy"}
