"""Options of `tersely compress`: every value that may not be, every pair that has no effect, and the flags."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
from fractions import Fraction
from typing import Any

import pytest

from tersely.cli.arguments import Parser
from tersely.errors import UserError
from tersely.options.compress import OPTIONS, CompressOptions
from tersely.options.effects import check, check_training, resolve
from tersely.options.option import add_options, options_in
from tersely.quantize.calibrators import CALIBRATORS, Hist
from tersely.strategy import parse_all

NAMES = [field.name for field in dataclasses.fields(CompressOptions)]


def parsed(*words: str) -> tuple[CompressOptions, frozenset[str]]:
    parser = Parser(prog="tersely compress", allow_abbrev=False)
    parser.add_argument("--model_name_or_path")
    add_options(parser, CompressOptions)
    found = options_in(parser.parse_args(list(words)), CompressOptions)
    return CompressOptions(**found), frozenset(found)


def checked(*words: str, **more: Any) -> None:
    options, named = parsed(*words)
    check(options, options.plans(), named, **more)


def refused(*words: str, **more: Any) -> str:
    with pytest.raises(UserError) as caught:
        checked(*words, **more)
    caught.value.on_command_line = True
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_defaults_of_every_option() -> None:
    options, named = parsed()
    assert named == frozenset()
    assert dataclasses.asdict(options) == {
        "strategy": ("dynabert+ptq",),
        "target_speedup": None,
        "target_batch": 16,
        "target_length": None,
        "target_threads": 1,
        "latency_table": None,
        "width_mult_list": (Fraction(3, 4),),
        "depth_mult_list": (Fraction(1),),
        "distill_hidden": None,
        "distill_logits": 1.0,
        "distill_temperature": 1.0,
        "label_loss": None,
        "importance": "labels",
        "importance_rows": 512,
        "teacher_model_name_or_path": None,
        "resume_from_checkpoint": True,
        "max_vocab_size": None,
        "algo_list": ("mse", "KL", "min_max"),
        "calibration_rows": 128,
        "batch_size_list": None,
        "batch_num_list": None,
        "weight_quantize_type": "channel_wise_abs_max",
        "activation_quantize_type": None,
        "moving_rate": 0.9,
        "use_pact": True,
        "round_type": "round",
        "bias_correction": False,
        "smooth": "auto",
        "quantize_attention": "auto",
        "skip_layers": (),
        "sensitivity": False,
        "max_drop": None,
        "max_minutes": None,
        "prefer": "speed",
        "origin_metric": None,
        "origin_tolerance": 0.05,
        "engines": None,
        "cpu_classes": "all",
        "input_dtype": "int64",
        "seed": 42,
        "input_infer_model_path": None,
    }
    check(options, options.plans(), named)


def test_every_option_has_a_reader_a_flag_and_help() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser, CompressOptions)
    flags = {action.option_strings[0]: action for action in parser._actions[1:]}
    assert [f"--{name}" for name in NAMES] == list(flags)
    assert list(OPTIONS) == NAMES
    assert all(OPTIONS[name].read for name in NAMES)
    assert all(action.help for action in flags.values())
    assert "--strategy" in parser.format_help()


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        ("--strategy ptq --strategy dynamic,embeddings", "strategy", ("ptq", "dynamic,embeddings")),
        ("--strategy ptq embeddings --strategy dynamic", "strategy", ("ptq embeddings", "dynamic")),
        ("--algo_list mse avg", "algo_list", ("mse", "avg")),
        ("--algo_list mse --algo_list avg", "algo_list", ("mse", "avg")),
        ("--batch_size_list 4 8 16", "batch_size_list", (4, 8, 16)),
        ("--batch_num_list 1 None", "batch_num_list", (1, None)),
        ("--smooth 0.7", "smooth", 0.7),
        ("--smooth off", "smooth", "off"),
        ("--bias_correction", "bias_correction", True),
        ("--bias_correction no", "bias_correction", False),
        ("--skip_layers *.pooler.* *query*", "skip_layers", ("*.pooler.*", "*query*")),
        ("--engines openvino", "engines", ("openvino",)),
        ("--max_drop 0.01", "max_drop", 0.01),
        ("--seed 7", "seed", 7),
    ],
)
def test_flags_are_read_and_known_as_given(words: str, name: str, value: Any) -> None:
    options, named = parsed(*words.split())
    assert getattr(options, name) == value
    assert named == {name}
    check(options, options.plans(), named)


def test_flag_set_to_its_default_counts_as_given() -> None:
    assert parsed("--calibration_rows", "128")[1] == {"calibration_rows"}


@pytest.mark.parametrize(
    ("settings", "same"),
    [
        ({"strategy": "ptq"}, {"strategy": ["ptq"]}),
        ({"algo_list": "mse, KL"}, {"algo_list": ["mse", "KL"]}),
        ({"batch_size_list": [4, 8]}, {"batch_size_list": "4 8"}),
        ({"batch_size_list": 4}, {"batch_size_list": (4,)}),
        ({"batch_num_list": [1, None]}, {"batch_num_list": ["1", "None"]}),
        ({"smooth": 0.5}, {"smooth": "0.5"}),
        ({"smooth": False}, {"smooth": "off"}),  # YAML reads off and on as these
        ({"quantize_attention": True}, {"quantize_attention": "on"}),
        ({"max_drop": 0}, {"max_drop": "0"}),
    ],
)
def test_python_yaml_and_command_line_say_the_same(settings: dict[str, Any], same: dict[str, Any]) -> None:
    assert CompressOptions(**settings) == CompressOptions(**same)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"strategy": "ptq+qat"}, "one at most"),
        ({"strategy": []}, "no strategy"),
        ({"strategy": ["ptq", ""]}, "strategy is empty"),
        ({"algo_list": ["msee"]}, "cannot be 'msee'. Did you mean 'mse'?"),
        ({"algo_list": ["kl"]}, "Did you mean 'KL'?"),
        ({"algo_list": ["percentile"]}, f"Known: {', '.join(CALIBRATORS)}."),
        ({"algo_list": ["mse", "KL", "mse"]}, "'algo_list' option holds mse twice"),
        ({"algo_list": []}, "'algo_list' option is empty"),
        ({"algo_list": ""}, "'algo_list' option is empty"),
        ({"calibration_rows": 0}, "'calibration_rows' option must be at least 1. Got 0."),
        ({"calibration_rows": "many"}, "must be a whole number. Got 'many'."),
        ({"calibration_rows": 1.5}, "must be a whole number. Got 1.5."),
        ({"calibration_rows": True}, "must be a whole number. Got True."),
        ({"calibration_rows": None}, "must be a whole number. Got None."),
        ({"batch_size_list": [4, 0]}, "'batch_size_list' option must be at least 1. Got 0."),
        ({"batch_size_list": [-4]}, "Got -4."),
        ({"batch_size_list": [None]}, "must be a whole number. Got None."),
        ({"batch_size_list": [4, 4]}, "holds 4 twice"),
        ({"batch_num_list": [0]}, "'batch_num_list' option must be at least 1. Got 0."),
        ({"batch_num_list": [None, "None"]}, "holds None twice"),
        ({"weight_quantize_type": "per_channel"}, "Known: channel_wise_abs_max, abs_max."),
        ({"activation_quantize_type": "range"}, "'activation_quantize_type' option cannot be 'range'."),
        ({"moving_rate": 1}, "must be from 0 to below 1. Got 1."),
        ({"moving_rate": -0.1}, "must be from 0 to below 1."),
        ({"round_type": "ada"}, "Known: round, adaround."),
        ({"bias_correction": "yes"}, "must be true or false. Got 'yes'."),
        ({"smooth": "autp"}, "must be a number. Got 'autp'. Or one of: auto, off."),
        ({"smooth": 1.5}, "must be from 0 to 1. Got 1.5."),
        ({"smooth": True}, "must be a number. Got True."),
        ({"smooth": "nan"}, "must be a number"),
        ({"quantize_attention": "maybe"}, "Known: auto, on, off."),
        ({"skip_layers": ["auto", "*pooler*"]}, "patterns or the one word auto"),
        ({"skip_layers": [""]}, "'skip_layers' option must be a text. Got ''."),
        ({"max_drop": -0.01}, "'max_drop' option must be at least 0. Got -0.01."),
        ({"max_drop": float("inf")}, "must be a number"),
        ({"origin_tolerance": -1}, "must be at least 0"),
        ({"engines": ["onnxruntime", "tensorrt"]}, "'engines' option cannot be 'tensorrt'."),
        ({"engines": ["torch"]}, "cannot be 'torch'"),
        ({"engines": ["openvinoo"]}, "Did you mean 'openvino'?"),
        ({"cpu_classes": "avx2"}, "Known: all, vnni."),
        ({"input_dtype": "int8"}, "cannot be 'int8'"),
        ({"seed": -1}, "'seed' option must be at least 0. Got -1."),
        ({"seed": 2**32}, "'seed' option must be at most 4294967295."),
        ({"input_infer_model_path": " "}, "must be a text"),
    ],
)
def test_values_that_cannot_be_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as caught:
        CompressOptions(**settings)
    assert said in str(caught.value)


IDLE = {
    "--algo_list": "KL",
    "--calibration_rows": "64",
    "--batch_size_list": "4",
    "--batch_num_list": "None",
    "--activation_quantize_type": "range_abs_max",
    "--moving_rate": "0.8",
    "--round_type": "adaround",
    "--bias_correction": "true",
    "--smooth": "0.5",
    "--quantize_attention": "on",
    "--sensitivity": "true",
    "--skip_layers": "auto",
}


@pytest.mark.parametrize("strategy", ["dynamic", "embeddings", "dynamic+embeddings"])
@pytest.mark.parametrize(("flag", "value"), IDLE.items())
def test_options_of_ptq_are_refused_by_name_without_it(flag: str, value: str, strategy: str) -> None:
    said = refused("--strategy", strategy, flag, value)
    assert f"'{flag}'" in said
    assert f"has no effect with the strategy '{strategy}'" in said
    assert "ptq" in said


@pytest.mark.parametrize(("flag", "value"), [item for item in IDLE.items() if item[0] != "--moving_rate"])
def test_options_of_ptq_are_taken_where_one_strategy_of_several_has_it(flag: str, value: str) -> None:
    checked("--strategy", "dynamic", "--strategy", "ptq+embeddings", flag, value)


@pytest.mark.parametrize(
    "words",
    ["--weight_quantize_type abs_max", "--weight_quantize_type channel_wise_abs_max", "--cpu_classes vnni"],
)
def test_options_of_integer_matmuls_are_refused_for_tables_alone(words: str) -> None:
    assert "has no effect with the strategy 'embeddings'. It is for dynamic or ptq or qat." in refused(
        "--strategy", "embeddings", *words.split()
    )
    checked("--strategy", "dynamic", *words.split())


@pytest.mark.parametrize(
    "words",
    [
        "--round_type round",
        "--bias_correction false",
        "--smooth off",
        "--quantize_attention off",
        "--sensitivity false",
        "--cpu_classes all",
        "--activation_quantize_type abs_max",
        "--skip_layers *pooler*",
        "--max_drop 0.01",
        "--seed 3",
        "--engines onnxruntime",
    ],
)
def test_what_is_true_of_dynamic_anyway_may_be_said(words: str) -> None:
    checked("--strategy", "dynamic", *words.split())


def test_options_of_a_step_that_is_not_asked_for_are_refused_with_its_name() -> None:
    assert "'--use_pact' option (True) has no effect" in refused("--strategy", "ptq", "--use_pact")
    assert "It is for qat." in refused("--strategy", "ptq", "--use_pact", "no")
    checked("--strategy", "qat", "--use_pact", "no")


def test_training_options_need_a_strategy_that_trains() -> None:
    plans = parse_all(["ptq", "dynamic"])
    check_training({"device": "cpu"}, plans)
    for name, value in (("device", "gpu"), ("learning_rate", 1e-4)):
        with pytest.raises(UserError, match=f"'{name}' option has no effect with the strategy 'ptq' or 'dynamic'"):
            check_training({name: value}, plans)
        check_training({name: value}, parse_all("dynabert"))


def test_ranges_at_run_time_make_ptq_dynamic_and_say_so() -> None:
    options = CompressOptions(activation_quantize_type="abs_max")
    plans, notes = resolve(options, parse_all(["ptq", "ptq+embeddings", "dynamic"]))
    assert [plan.name for plan in plans] == ["dynamic", "dynamic+embeddings"]
    assert [note.split(":")[0] for note in notes] == [
        "ptq runs as dynamic",
        "ptq+embeddings runs as dynamic+embeddings",
    ]
    said = refused("--activation_quantize_type", "abs_max", "--algo_list", "mse")
    assert "'--algo_list' option (mse) has no effect with --activation_quantize_type abs_max" in said


@pytest.mark.parametrize("kind", [None, "range_abs_max", "moving_average_abs_max"])
def test_other_plans_run_as_they_are(kind: str | None) -> None:
    plans = parse_all(["ptq", "dynamic", "embeddings", "qat"])
    assert resolve(CompressOptions(activation_quantize_type=kind), plans) == (plans, ())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--calibration_rows 64 --batch_size_list 4", "'--calibration_rows' option has no effect beside"),
        ("--calibration_rows 64 --batch_num_list None", "'--calibration_rows' option has no effect beside"),
        ("--moving_rate 0.5", "no effect without --activation_quantize_type moving_average_abs_max"),
        ("--moving_rate 0.5 --activation_quantize_type range_abs_max", "'--moving_rate' option has no effect"),
        ("--origin_tolerance 0.1", "'--origin_tolerance' option has no effect without --origin_metric"),
        ("--input_infer_model_path g.onnx --input_dtype int32", "that graph has its own"),
        ("--input_infer_model_path g.onnx --strategy dynabert+ptq", "'dynabert' needs a model folder"),
        ("--origin_metric 81.9", "must be from 0 to 1. Got 81.9. Scores are fractions: 81.9 in points is 0.819."),
        ("--origin_metric -0.5", "must be from 0 to 1. Got -0.5."),
        ("--origin_metric 500", "must be from 0 to 1. Got 500."),
        ("--max_drop 1", "from 0 to below 1. Got 1. Scores are fractions: 1 in points is 0.01."),
        ("--max_drop 2.5", "2.5 in points is 0.025"),
        ("--origin_metric 0.8 --origin_tolerance 5", "'--origin_tolerance' option must be from 0 to below 1. Got 5."),
    ],
)
def test_options_that_do_not_go_together_are_refused(words: str, said: str) -> None:
    assert said in refused(*words.split())


@pytest.mark.parametrize(
    "words",
    [
        "--moving_rate 0.5 --activation_quantize_type moving_average_abs_max",
        "--origin_metric 0.819 --origin_tolerance 0",
        "--origin_metric 1 --max_drop 0",
        "--input_infer_model_path g.onnx --strategy ptq+embeddings",
        "--batch_size_list 4 8 --batch_num_list 1 None --algo_list mse emd",
    ],
)
def test_options_that_go_together_pass(words: str) -> None:
    checked(*words.split())


def test_fractions_follow_the_bounds_of_the_metric() -> None:
    checked("--origin_metric", "-0.2", bounds=(-1.0, 1.0))
    checked("--origin_metric", "3.5", "--max_drop", "2", bounds=(0.0, float("inf")))
    assert "must be from 0. Got -3." in refused("--origin_metric", "-3", bounds=(0.0, float("inf")))


@pytest.mark.parametrize("words", ["--max_drop 0.01", "--origin_metric 0.8"])
def test_gates_need_rows_to_score(words: str) -> None:
    said = refused(*words.split(), scored=False)
    assert f"'{words.split()[0]}' option has no effect without labelled rows" in said
    checked(scored=False)


def test_engine_that_is_not_installed_names_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "openvino" else found(name))
    assert 'pip install "openvino>=' in refused("--engines", "openvino")


def test_a_calibrator_of_the_users_own_is_taken_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CALIBRATORS, "fence", Hist(share=0.5))
    assert CompressOptions(algo_list=("fence", "mse")).algo_list == ("fence", "mse")


def test_options_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        CompressOptions().seed = 1  # type: ignore[misc]
