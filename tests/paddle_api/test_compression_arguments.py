"""`CompressionArguments`: every default, what is read, what is refused, what survives a copy."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import subprocess
import sys
import warnings
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import TrainingArguments
from transformers.training_args import OptimizerNames

import tersely
from tersely import CompressionArguments, UserError
from tersely.options.compress import CompressOptions
from tersely.paddle_api.arguments import request_of
from tersely.tasks.options import TaskOptions
from tersely.training.arguments import DeviceWarning

TABLE: dict[str, Any] = {
    "strategy": "dynabert+ptq",
    "input_infer_model_path": None,
    "input_dtype": "int64",
    "width_mult_list": [Fraction(3, 4)],
    "depth_mult_list": [Fraction(1)],
    "algo_list": ["mse", "KL", "min_max"],  # docs/explanation/decisions.md says why three
    "calibration_rows": 128,
    "batch_size_list": None,
    "batch_num_list": None,
    "weight_quantize_type": "channel_wise_abs_max",
    "activation_quantize_type": None,
    "round_type": "round",
    "bias_correction": False,
    "smooth": "auto",
    "quantize_attention": "auto",
    "skip_layers": [],
    "use_pact": True,
    "moving_rate": 0.9,
    "distill_hidden": None,
    "distill_logits": 1.0,
    "distill_temperature": 1.0,
    "label_loss": None,
    "per_device_train_batch_size": 8,
    "per_device_eval_batch_size": 8,
    "num_train_epochs": 3.0,
    "max_steps": -1,
    "logging_steps": 500,
    "save_steps": 100,
    "learning_rate": 5e-5,
    "weight_decay": 0.0,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-8,
    "max_grad_norm": 1.0,
    "lr_scheduler_type": "linear",
    "warmup_ratio": 0.0,
    "warmup_steps": 0,
    "seed": 42,
    "remove_unused_columns": True,
    "gradient_accumulation_steps": 1,
    "metric": None,
    "origin_metric": None,
    "origin_tolerance": 0.05,
    "max_drop": None,
    "engines": None,
    "cpu_classes": "all",
    "teacher_model_name_or_path": None,
    "overwrite": False,
    "overwrite_output_dir": False,
    "do_train": False,
    "do_eval": False,
    "do_compress": False,
    "do_export": False,
    "task": None,
    "max_seq_length": None,
    "doc_stride": None,
    "importance": "labels",
    "importance_rows": 512,
    "max_vocab_size": None,
}


@pytest.mark.parametrize(("name", "value"), TABLE.items())
def test_default_of_every_argument(name: str, value: Any) -> None:
    assert getattr(CompressionArguments("out"), name) == value


def test_every_option_of_the_command_is_a_field() -> None:
    fields = {field.name for field in dataclasses.fields(CompressionArguments)}
    for kind in (TrainingArguments, CompressOptions, TaskOptions):
        assert {field.name for field in dataclasses.fields(kind)} <= fields
    assert issubclass(CompressionArguments, TrainingArguments)
    assert not {"device", "overwrite_output_dir", "warmup_ratio"} & fields


def test_defaults_are_not_shared() -> None:
    first, other = CompressionArguments("out"), CompressionArguments("out")
    first.algo_list.append("avg")
    assert other.algo_list == TABLE["algo_list"]


@given(st.lists(st.fractions(0, 1).filter(bool), min_size=1, max_size=4, unique=True))
@settings(max_examples=25, deadline=None)
def test_fractions_are_read_exactly_however_they_are_written(shares: list[Fraction]) -> None:
    for written in (shares, tuple(shares), [str(share) for share in shares], " ".join(map(str, shares))):
        arguments = CompressionArguments("out", width_mult_list=written)
        assert arguments.width_mult_list == shares
    again = CompressionArguments(**json.loads(arguments.to_json_string()))
    assert again.width_mult_list == shares


@given(st.decimals(min_value="0.001", max_value=1, places=3))
@settings(max_examples=25, deadline=None)
def test_a_decimal_is_what_it_prints_as(share: Any) -> None:
    for written in (float(share), str(share), [float(share)]):
        assert CompressionArguments("out", width_mult_list=written).width_mult_list == [Fraction(str(share))]


@pytest.mark.parametrize("code", ["__import__('os').getcwd()", "1-1/4", "2**-1", "[0.5][0]", "0x1", "1/0", "nan", ""])
def test_fractions_are_never_evaluated(code: str) -> None:
    with pytest.raises(UserError, match="'width_mult_list' option"):
        CompressionArguments("out", width_mult_list=[code])


@pytest.mark.parametrize("written", [[1, None], ["1", "None"], "1 None", (1, "None")])
def test_none_may_be_an_element_of_batch_num_list(written: Any) -> None:
    assert CompressionArguments("out", batch_num_list=written).batch_num_list == [1, None]


def test_names_that_transformers_lacks_are_translated() -> None:
    arguments = CompressionArguments("out", warmup_ratio=0.25, optim="adamw", device="cpu")
    assert (arguments.warmup_steps, arguments.warmup_ratio) == (0.25, 0.25)
    assert arguments.optim == TrainingArguments("out").optim
    assert (arguments.use_cpu, arguments.device.type) == (True, "cpu")
    assert arguments.get_warmup_steps(200) == 50
    assert CompressionArguments("out", warmup_steps=7, warmup_ratio=0.0).warmup_steps == 7
    with pytest.raises(UserError, match="'warmup_ratio' option is a share"):
        CompressionArguments("out", warmup_steps=7, warmup_ratio=0.5)


def test_overwrite_has_two_names() -> None:
    older = {"overwrite_output_dir": True}
    for options in ({"overwrite": True}, older, {"overwrite": False, **older}):
        arguments = CompressionArguments("out", **options)
        assert (arguments.overwrite, arguments.overwrite_output_dir, arguments.set_fields) == (
            True,
            True,
            {"overwrite"},
        )
        assert "overwrite_output_dir" not in arguments.to_dict()
    arguments.overwrite_output_dir = False
    assert not arguments.overwrite
    arguments.overwrite = True
    assert arguments.overwrite_output_dir
    assert request_of(arguments).overwrite


def test_a_gpu_that_is_not_there_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.warns(DeviceWarning, match="no GPU for '--device gpu': the CPU is used"):
        arguments = CompressionArguments("out", device="gpu")
    assert arguments.use_cpu
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert CompressionArguments("out").device.type == "cpu"


def test_fields_that_are_set_later_are_read_and_remembered() -> None:
    arguments = CompressionArguments("out")
    assert arguments.set_fields == set()
    arguments.width_mult_list, arguments.strategy = [0.5], "dynabert"
    arguments.optim, arguments.warmup_ratio = "sgd", 0.1
    assert arguments.width_mult_list == [Fraction(1, 2)]
    assert (arguments.optim, arguments.warmup_steps) == (OptimizerNames.SGD, 0.1)
    assert arguments.set_fields == {"width_mult_list", "strategy", "optim", "warmup_steps"}
    arguments.optim = "adamw"
    assert arguments.optim == TrainingArguments("out").optim
    with pytest.raises(UserError, match="Did you mean 'mse'"):
        arguments.algo_list = ["msee"]
    assert arguments.algo_list == TABLE["algo_list"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"output_dir": None}, "'output_dir' option is needed"),
        ({"stategy": "ptq"}, "no option 'stategy'. Did you mean 'strategy'?"),
        ({"strategy": "ptq+qat"}, "one at most"),
        ({"strategy": "dynaber"}, "Did you mean 'dynabert'?"),
        ({"width_mult_list": ["5/4"]}, "must hold fractions in (0, 1]. Got '5/4'."),
        ({"batch_size_list": [0]}, "'batch_size_list' option must be at least 1"),
        ({"per_device_train_batch_size": 0}, "'per_device_train_batch_size' option must be at least 1"),
        ({"max_steps": 0}, "'max_steps' option must be at least 1"),
        ({"max_seq_length": 0}, "'max_seq_length' option must be at least 1"),
        ({"max_seq_length": "long"}, "'max_seq_length' option must be a whole number. Got 'long'."),
        ({"task": "poetry"}, "no task 'poetry'"),
        ({"optim": "adamm"}, "A training option cannot be taken: adamm"),
        ({"device": "tpu"}, "'device' option cannot be 'tpu'"),
        ({"device": "gpu:1"}, "CUDA_VISIBLE_DEVICES"),
        ({"distill_hidden": 0, "distill_logits": 0}, "nothing is learnt"),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_made(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as caught:
        CompressionArguments(**{"output_dir": "out", **options})
    assert said in str(caught.value)


def test_copies_are_equal_and_know_what_was_set() -> None:
    arguments = CompressionArguments("out", strategy=["ptq", "dynamic"], width_mult_list="2/3", smooth=0.5, seed=7)
    names = {"strategy", "width_mult_list", "smooth", "seed"}
    assert arguments.set_fields == names
    copies = [pickle.loads(pickle.dumps(arguments)), copy.deepcopy(arguments)]  # noqa: S301
    copies += [dataclasses.replace(arguments), CompressionArguments(**arguments.to_dict())]
    for copied in copies:
        assert copied.to_dict() == arguments.to_dict()
        assert (copied.set_fields, copied.strategy, copied.width_mult_list) == (
            names,
            ["ptq", "dynamic"],
            [Fraction(2, 3)],
        )
    assert copies[0] == copies[2] == arguments
    assert dataclasses.replace(arguments, seed=42).set_fields == names - {"seed"}


def test_it_can_be_shown_and_written_as_json() -> None:
    arguments = CompressionArguments("out", width_mult_list="3/4 2/3", batch_num_list="1 None")
    content = json.loads(arguments.to_json_string())
    assert content["width_mult_list"] == ["3/4", "2/3"]
    assert content["batch_num_list"] == [1, None]
    assert content["strategy"] == "dynabert+ptq"
    assert repr(arguments) == str(arguments)
    assert "width_mult_list=[Fraction(3, 4), Fraction(2, 3)]" in repr(arguments)
    assert arguments.to_sanitized_dict()["smooth"] == "auto"


def test_printing_shows_what_counts_and_fills_in_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = CompressionArguments("out", strategy="qat", width_mult_list="2/3", learning_rate=1e-4)
    before = {**arguments.to_dict(), "set_fields": set(arguments.set_fields)}
    arguments.print_config()
    said = capsys.readouterr().out.splitlines()
    assert {**arguments.to_dict(), "set_fields": arguments.set_fields} == before
    assert said[0] == "Compression options"
    shown = {name.strip(): value.strip() for name, _, value in (line.partition(" : ") for line in said[1:])}
    assert {"strategy": "qat", "width_mult_list": "['2/3']", "batch_num_list": "None"}.items() <= shown.items()
    assert shown["learning_rate"] == "0.0001"  # it was set
    assert shown["output_dir"] == "out"
    assert "adam_beta1" not in shown  # of training, and not set


def test_importing_tersely_stays_light() -> None:
    code = (
        "import sys, time; start = time.process_time(); import tersely; spent = time.process_time() - start;"
        "assert spent < 0.2, spent; assert not {'torch', 'transformers', 'yaml', 'numpy'} & set(sys.modules);"
        "assert {'CompressionArguments', 'PdArgumentParser'} <= set(tersely.__all__)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert all(hasattr(tersely, name) for name in tersely.__all__)
