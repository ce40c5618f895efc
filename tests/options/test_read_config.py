"""Configuration files: PaddleNLP's two shapes and plain options, every key, every mistake with its line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tersely.errors import UserError
from tersely.options.compress import CompressOptions
from tersely.options.data import DataOptions
from tersely.options.yaml import Asker, Config, read_config
from tersely.options.yaml.automatic import METHODS, SECTIONS
from tersely.tasks.options import TaskOptions

OPTIONS = [
    *(name for kind in (CompressOptions, DataOptions, TaskOptions) for name in kind.__dataclass_fields__),
    "model_name_or_path", "output_dir", "num_train_epochs", "max_steps", "learning_rate", "weight_decay", "save_steps",
    "logging_steps", "per_device_train_batch_size", "per_device_eval_batch_size", "optim", "lr_scheduler_type",
    "adam_beta1", "adam_beta2", "adam_epsilon", "warmup_steps", "warmup_ratio",
]  # fmt: skip


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def reading(text: str | bytes, dataset: str | None = None, task: str | None = None, **more: Any) -> Config:
        file = tmp_path / "config.yml"
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return read_config(file, Asker(OPTIONS, more, dataset, task))

    return reading


def words(config: Config) -> dict[str, str]:
    return {name: " ".join(setting.words) for name, setting in config.settings.items()}


REFERENCE = """\
# options of all data sets
DefaultArgs:
    learning_rate: 0.00003
    num_train_epochs: 3
    batch_size: 64
    max_seq_length: 128
    metric: "Accuracy"
    max_answer_length: 50
    do_train: True
    strategy: "dynabert+ptq"
    algo_list: ["hist", "mse"]
    batch_num_list: [1, None]
    width_mult_list: [0.75]
SequenceClassification:
    clue afqmc:
        num_train_epochs: 6
        batch_size: 32
    tnews: {learning_rate: 5e-5}
TokenClassification:
    msra_ner:
        max_seq_length: 96
QuestionAnswering:
    clue cmrc2018:
        max_seq_length: 512
"""
EVERYWHERE = {
    "strategy": "dynabert+ptq",
    "algo_list": "hist mse",
    "batch_num_list": "1 None",
    "width_mult_list": "0.75",
}


@pytest.mark.parametrize(
    ("dataset", "other"),
    [
        ("afqmc", {"num_train_epochs": "6", "per_device_train_batch_size": "32", "per_device_eval_batch_size": "32"}),
        ("clue afqmc", {"num_train_epochs": "6", "learning_rate": "0.00003", "metric": "accuracy"}),
        ("clue/tnews", {"learning_rate": "5e-5", "num_train_epochs": "3", "per_device_eval_batch_size": "64"}),
        ("data/TNEWS", {"learning_rate": "5e-5"}),
        ("msra_ner", {"max_seq_length": "96", "metric": None, "max_answer_length": None}),
        ("cmrc2018", {"max_seq_length": "512", "max_answer_length": "50", "metric": None}),
    ],
)
def test_a_data_sets_options_lie_over_the_defaults(dataset: str, other: dict[str, str | None], read: Any) -> None:
    config = read(REFERENCE, dataset, do_train="scripts read it")
    found = words(config)
    for name, value in {**EVERYWHERE, **other}.items():
        assert found.get(name) == value
    assert config.left_out["DefaultArgs.do_train"] == "scripts read it"


def test_settings_carry_file_line_and_key(read: Any, tmp_path: Path) -> None:
    settings = read(REFERENCE, "afqmc", do_train="").settings
    assert (
        settings["num_train_epochs"].where
        == f"{tmp_path}/config.yml:16, SequenceClassification.clue afqmc.num_train_epochs"
    )
    assert settings["learning_rate"].where.endswith("config.yml:3, DefaultArgs.learning_rate")


def test_one_data_set_needs_no_name_and_a_task_tells_two_apart(read: Any) -> None:
    single = "DefaultArgs: {seed: 1}\nTokenClassification: {mine: {seed: 2}}"
    assert words(read(single)) == {"seed": "2"}
    two = f"{single}\nQuestionAnswering: {{mine: {{seed: 3}}}}"
    assert words(read(two, "mine", "question_answering")) == {"seed": "3"}
    assert words(read("DefaultArgs: {seed: 1}")) == {"seed": "1"}
    with pytest.raises(UserError, match=r"several data sets: mine, mine\. Name its kind with task"):
        read(two, "mine")


AUTOMATIC = """\
Global:
  model_dir: ./afqmc
  model_filename: inference.pdmodel
  params_filename: inference.pdiparams
  task_name: afqmc
  dataset: clue
  batch_size: 16
  max_seq_length: 128
TransformerPrune:
  pruned_ratio: 0.25
HyperParameterOptimization:
Distillation:
Quantization:
TrainConfig:
  epochs: 6
  eval_iter: 1070
  learning_rate: 2.0e-5
  optimizer_builder:
    optimizer:
      type: AdamW
    weight_decay: 0.01
  origin_metric: 0.7403
"""


def test_the_sample_of_automatic_compression_is_read(read: Any) -> None:
    config = read(AUTOMATIC)
    assert words(config) == {
        "model_name_or_path": "./afqmc",
        "dataset": "clue afqmc",
        "per_device_train_batch_size": "16",
        "per_device_eval_batch_size": "16",
        "max_seq_length": "128",
        "width_mult_list": "3/4",
        "num_train_epochs": "6",
        "save_steps": "1070",
        "learning_rate": "2.0e-5",
        "optim": "adamw",
        "weight_decay": "0.01",
        "origin_metric": "0.7403",
        "strategy": "dynabert+ptq",
    }
    assert set(config.left_out) == {"Global.model_filename", "Global.params_filename"}
    notes = " ".join(config.notes())
    assert "Global.params_filename" in notes
    assert "name a transformers folder" in notes


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("QuantPost: {}", {"strategy": "ptq"}),
        ("QuantPtq: {algo: KL, batch_size: 32, batch_nums: 4}",
         {"strategy": "ptq", "algo_list": "KL", "batch_size_list": "32", "batch_num_list": "4"}),
        ("QuantPost: {bias_correction: true}", {"strategy": "ptq", "bias_correction": "true"}),
        ("QuantPost: {recon_level: layer-wise, batch_nums: null}", {"strategy": "ptq", "round_type": "adaround"}),
        ("QuantPost: {recon_level: None}", {"strategy": "ptq"}),
        ("QuantAware: {use_pact: false, moving_rate: 0.8, weight_bits: 8, dtype: int8}",
         {"strategy": "qat", "use_pact": "false", "moving_rate": "0.8"}),
        ("Quantization: {moving_rate: 0.8}\nPrune: {prune_algo: transformer_pruner, pruned_ratio: 1/3}",
         {"strategy": "qat+dynabert", "moving_rate": "0.8", "width_mult_list": "2/3"}),
        ("TransformerPrune: {pruned_ratio: [0.25, 0.5]}", {"strategy": "dynabert", "width_mult_list": "3/4 1/2"}),
        ("Distillation: {alpha: 0.5, loss: l2, teacher_model_dir: big}",
         {"strategy": "auto", "distill_logits": "0.5", "teacher_model_name_or_path": "big"}),
        ("Global: {model_dir: m}\nDistillation: {teacher_model_dir: ./m/}",
         {"strategy": "auto", "model_name_or_path": "m"}),
        ("Global: {model_dir: m, model_filename: model.onnx}",
         {"strategy": "auto", "model_name_or_path": "m", "input_infer_model_path": "m/model.onnx"}),
        ("Global: {train_data: a.txt, dev_data: b.txt}",
         {"strategy": "auto", "train_file": "a.txt", "eval_file": "b.txt"}),
        ("TrainConfig: {train_iter: 100, logging_iter: 10, optimizer: SGD, optim_args: {weight_decay: 0.1}}",
         {"strategy": "auto", "max_steps": "100", "logging_steps": "10", "optim": "sgd", "weight_decay": "0.1"}),
        ("TrainConfig: {learning_rate: {type: CosineAnnealingDecay, learning_rate: 0.01, T_max: 9}}",
         {"strategy": "auto", "lr_scheduler_type": "cosine", "learning_rate": "0.01"}),
        ("TrainConfig: {origin_metric: 0.7403, target_metric: 0.73}",
         {"strategy": "auto", "origin_metric": "0.7403", "max_drop": "0.0103"}),
        ("HyperParameterOptimization: {ptq_algo: [KL, hist], batch_num: [4, 16], bias_correct: [true]}",
         {"strategy": "ptq", "algo_list": "KL hist", "batch_num_list": "4 16", "bias_correction": "true"}),
        ("Global: {max_seq_length: 64}\nstrategy: dynamic", {"max_seq_length": "64", "strategy": "dynamic"}),
    ],
)  # fmt: skip
def test_sections_become_options(text: str, found: dict[str, str], read: Any) -> None:
    assert words(read(text)) == found


def test_keys_of_other_engines_are_accepted_and_named(read: Any) -> None:
    text = "QuantAware: {quantize_op_types: [conv2d], for_tensorrt: true, onnx_format: true, not_quant_pattern: [skip]}"
    assert set(read(text).left_out) == {
        f"QuantAware.{name}" for name in ("quantize_op_types", "for_tensorrt", "onnx_format", "not_quant_pattern")
    }


def test_what_a_section_may_hold_is_an_option_or_said_to_be_none() -> None:
    assert METHODS.keys() < SECTIONS.keys()
    assert set(METHODS.values()) == {"dynabert", "qat", "ptq"}


def test_plain_options_are_read_as_the_command_line_has_them(read: Any) -> None:
    text = "smooth: off\nlearning_rate: 1e-5\nseed: 0o17\nmax_drop: null\nmetric: ~\nengines: None\n"
    found = words(read(text + "batch_num_list: [1, ~, None]\n"))
    assert found == {"smooth": "off", "learning_rate": "1e-5", "seed": "0o17", "batch_num_list": "1 None None"}


def test_anchors_and_merges_are_followed(read: Any) -> None:
    text = "DefaultArgs: &all {seed: 1, smooth: off}\nTokenClassification: {mine: {<<: *all, seed: 2}}"
    assert words(read(text)) == {"seed": "2", "smooth": "off"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "config.yml: The file holds no options."),
        ("- a\n- b", "The file holds no options"),
        ("seed: 1\nstrategi: ptq", "config.yml:2, strategi: There is no option 'strategi'. Did you mean 'strategy'?"),
        ("xyzzy: 1", "The options are those of the command line"),
        ("seed: 1\nseed: 2", "config.yml:2: The key 'seed' stands there twice."),
        ("seed: [1\nx: 2", "config.yml:2: The file is not YAML"),
        ("seed: 1\n---\nseed: 2", "The file is not YAML"),
        (b"metric: \xff\xfe", "The file is not UTF-8"),
        ("seed: {a: 1}", "config.yml:1, seed: This must be a value or a list"),
        ("algo_list: [[mse]]", "The list must hold words or numbers"),
        ("a: &x [*x]", "config.yml:1: The value holds itself."),
        ("? [a]\n: 1", "A key must be a word"),
        ("DefaultArgs: 3", "config.yml:1, DefaultArgs: This must hold keys and values."),
        ("DefaultArgs:\n  lerning_rate: 1", "config.yml:2, DefaultArgs.lerning_rate: There is no option"),
        ("DefaultArgs: {lerning_rate: 1}", "Did you mean 'learning_rate'?"),
        ("SequenceClassification: {a: {}, b: {}}", "several data sets: a, b. Name one with dataset."),
        ("DefaultArgs: {}\nGlobal: {}", "are of two kinds of files"),
        ("Globl: {model_dir: x}", "Did you mean 'Global'?"),
        ("Global:\n  model_dri: x", "config.yml:2, Global.model_dri: There is no 'model_dri' in 'Global'."),
        ("Global: {model_dri: x}", "Did you mean 'model_dir'?"),
        ("Global: {dataset: squad}", "'Global.dataset' must be clue or glue. Got 'squad'."),
        ("TrainConfig: {optimizer_builder: {optimizer: {typ: Adam}}}", "no 'typ' in 'TrainConfig.optimizer_builder."),
        ("TrainConfig: {optimizer: Momentum}", "'TrainConfig.optimizer' cannot be 'Momentum'."),
        ("TrainConfig: {target_metric: 0.7}", "'target_metric' needs the score to start from."),
        ("TrainConfig: {origin_metric: 0.6, target_metric: 0.7}", "'target_metric' (0.7) is above 'origin_metric'"),
        ("TrainConfig: {origin_metric: x, target_metric: 0.7}", "must be numbers"),
        ("QuantPost: {weight_bits: 4}", "config.yml:1, QuantPost.weight_bits: 'QuantPost.weight_bits' must be 8."),
        ("QuantAware: {activation_bits: 16}", "must be 8. Got '16'."),
        ("QuantPost: {recon_level: region-wise}", "must be layer-wise"),
        ("QuantPost: {}\nQuantAware: {}", "'QuantAware' stands beside a section of calibration"),
        ("Prune: {prune_algo: asp}", "must be transformer_pruner"),
        ("TransformerPrune: {pruned_ratio: 1.5}", "pruned_ratio' must be between 0 and 1. Got '1.5'."),
        ("TransformerPrune: {pruned_ratio: __import__('os')}", "must be between 0 and 1"),
        ("UnstructurePrune: {pruned_ratio: 0.5}", "'UnstructurePrune' is not offered."),
        ("MultiTeacherDistillation: {}", "'MultiTeacherDistillation' is not offered. Name one teacher"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_file_line_and_key(text: str | bytes, said: str, read: Any) -> None:
    with pytest.raises(UserError) as caught:
        read(text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_data_set_that_is_not_there_is_told_with_the_nearest(read: Any) -> None:
    with pytest.raises(UserError, match=r"no data set 'afqcm' in the file\. Did you mean 'afqmc'"):
        read(REFERENCE, "afqcm")


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such configuration file"):
        read_config(tmp_path / "none.yml", Asker(OPTIONS))
    with pytest.raises(UserError, match="cannot be read"):
        read_config(tmp_path, Asker(OPTIONS))


def test_many_aliases_take_no_time(read: Any) -> None:
    levels = "\n".join(f"  l{i + 1}: &l{i + 1} [*l{i}, *l{i}, *l{i}, *l{i}]" for i in range(40))
    with pytest.raises(UserError, match="There is no option 'l0'"):
        read(f"DefaultArgs:\n  l0: &l0 [1]\n{levels}")
    nested = ", ".join(f"&l{i + 1} [*l{i}, *l{i}, *l{i}, *l{i}]" for i in range(40))
    with pytest.raises(UserError, match="The list must hold words or numbers"):
        read(f"algo_list: [&l0 [1], {nested}]")


def test_reading_needs_no_torch() -> None:
    code = "import sys, tersely.options.yaml; assert not {'torch', 'transformers', 'yaml'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
