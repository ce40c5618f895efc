"""`PdArgumentParser`: command lines of ported scripts, files beneath them, and what it refuses."""

from __future__ import annotations

import json
import pickle
import warnings
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tersely import CompressionArguments, PdArgumentParser, UserError
from tersely.options.data import DataOptions
from tersely.paddle_api.parser import ConfigWarning


@dataclass
class ModelArguments:
    model_name_or_path: str = field(metadata={"help": "the model, 100 % of it"})
    export_model_dir: str = "./best_models"


@dataclass
class DataArguments:
    dataset: str = "tnews"
    max_seq_length: int = 128
    do_lower_case: bool = True
    dynamic_max_length: list[int] | None = None
    more: dict = field(default_factory=dict)  # type: ignore[type-arg]


def parsed(*words: str) -> Any:
    return PdArgumentParser(CompressionArguments).parse_args_into_dataclasses(["--output_dir", "out", *words])


def mine(*words: str) -> Any:
    return PdArgumentParser(MyArguments).parse_args_into_dataclasses(["--output_dir", "out", *words])


def three(*words: str) -> Any:
    parser = PdArgumentParser((ModelArguments, DataArguments, CompressionArguments))
    return parser.parse_args_into_dataclasses(["--model_name_or_path", "m", "--output_dir", "out", *words])


def test_one_dataclass_is_a_tuple_that_stands_for_it() -> None:
    arguments = parsed("--strategy", "ptq")
    (inner,) = arguments
    assert isinstance(arguments, tuple)
    assert isinstance(inner, CompressionArguments)
    assert arguments.strategy == inner.strategy == "ptq"
    arguments.width_mult_list = ["2/3"]
    arguments.note_of_the_script = "kept"
    assert inner.width_mult_list == [Fraction(2, 3)]
    assert inner.note_of_the_script == "kept"
    assert pickle.loads(pickle.dumps(arguments)).strategy == "ptq"  # noqa: S301
    with pytest.raises(AttributeError):
        _ = arguments.no_such_thing


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        ("--strategy ptq embeddings", "strategy", "ptq embeddings"),
        ("--strategy ptq --strategy dynamic", "strategy", ["ptq", "dynamic"]),
        ("--width_mult_list 3/4 0.5", "width_mult_list", [Fraction(3, 4), Fraction(1, 2)]),
        ("--width-mult-list 2/3", "width_mult_list", [Fraction(2, 3)]),
        ("--batch_num_list 1 None", "batch_num_list", [1, None]),
        ("--batch_size_list 4 8 16", "batch_size_list", [4, 8, 16]),
        ("--bias_correction", "bias_correction", True),
        ("--use_pact false", "use_pact", False),
        ("--no_use_pact", "use_pact", False),
        ("--remove_unused_columns False", "remove_unused_columns", False),
        ("--no_remove_unused_columns", "remove_unused_columns", False),
        ("--smooth off", "smooth", "off"),
        ("--smooth 0.7", "smooth", 0.7),
        ("--device cpu", "use_cpu", True),
        ("--optim adamw", "optim", "adamw_torch_fused"),
        ("--optim sgd", "optim", "sgd"),
        ("--warmup_ratio 0.1", "warmup_steps", 0.1),
        ("--learning-rate=3e-5", "learning_rate", 3e-5),
        ("--label_names start_positions end_positions", "label_names", ["start_positions", "end_positions"]),
        ("--do_compress", "do_compress", True),
        ("--overwrite", "overwrite", True),
        ("--overwrite_output_dir", "overwrite", True),
        ("--overwrite_output_dir false", "overwrite", False),
        ("--save_dir there", "output_dir", "there"),
    ],
)
def test_flags_are_read(words: str, name: str, value: Any) -> None:
    assert getattr(parsed(*words.split()), name) == value


def test_only_what_the_command_line_has_counts_as_set() -> None:
    assert parsed("--calibration_rows", "128", "--device", "cpu")[0].set_fields == {"calibration_rows", "use_cpu"}


def test_a_name_of_several_dataclasses_is_one_flag_for_all() -> None:
    model, data, compression = three("--max_seq_length", "64", "--more", '{"a": 1}', "--dynamic_max_length", "16", "32")
    assert (data.max_seq_length, compression.max_seq_length, data.more) == (64, 64, {"a": 1})
    assert data.dynamic_max_length == [16, 32]
    model, data, compression = three()
    assert (model.export_model_dir, data.max_seq_length, compression.max_seq_length) == ("./best_models", 128, None)


def test_data_options_of_the_command_can_be_parsed_beside_it() -> None:
    parser = PdArgumentParser([DataOptions, CompressionArguments])
    data, _ = parser.parse_args_into_dataclasses(["--output_dir", "out", "--train_file", "a.tsv", "--header", "no"])
    assert data == DataOptions(train_file="a.tsv", header=False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--widht_mult_list", "3/4"], "There is no option '--widht_mult_list'. Did you mean '--width_mult_list'?"),
        (["--stategy=ptq"], "Did you mean '--strategy'?"),
        (["--width_mult", "3/4"], "There is no option '--width_mult'."),
        (["--device", "cpu", "gpu"], "The word 'gpu' belongs to no option."),
        (["--learning_rate", "fast"], "invalid float value: 'fast'"),
        (["--algo_list", "msee"], "'--algo_list' option cannot be 'msee'. Did you mean 'mse'?"),
        (["--strategy", "ptq", "qat"], "one at most"),
        (["--bias_correction", "perhaps"], "expected true or false, got 'perhaps'"),
        (["--optim", "adamm"], "invalid choice: 'adamm'"),
        (["--config"], "expected one argument"),
        (["--config", "no-such.yml"], "no-such.yml: There is no such configuration file."),
    ],
)
def test_what_cannot_be_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(UserError) as caught:
        parsed(*words)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_needed_options_are_named() -> None:
    with pytest.raises(UserError, match="'--output_dir' option is needed"):
        PdArgumentParser(CompressionArguments).parse_args_into_dataclasses([])
    with pytest.raises(UserError, match="'--model_name_or_path' option is needed"):
        PdArgumentParser(ModelArguments).parse_args_into_dataclasses([])


def test_a_script_ends_with_one_line_and_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["script.py", "--output_dir", "out", "--stategy", "ptq"])
    with pytest.raises(SystemExit) as stopped:
        PdArgumentParser(CompressionArguments, prog="script.py").parse_args_into_dataclasses()
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "script.py: There is no option '--stategy'. Did you mean '--strategy'?\n"


def test_remaining_words_and_further_arguments_are_given_back() -> None:
    parser = PdArgumentParser(CompressionArguments)
    parser.add_argument("--of_the_script", default="x")
    made, more, rest = parser.parse_args_into_dataclasses(
        ["--output_dir", "out", "--unknown", "1"], return_remaining_strings=True
    )
    assert (made.output_dir, more.of_the_script, rest) == ("out", "x", ["--unknown", "1"])


def test_args_files_come_before_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "a.args").write_text("--output_dir file --seed 1")
    parser = PdArgumentParser(CompressionArguments)
    made = parser.parse_args_into_dataclasses(["--seed", "2"], args_filename=str(tmp_path / "a.args"))
    assert (made.output_dir, made.seed) == ("file", 2)
    words = ["--args", str(tmp_path / "a.args"), "--seed", "3"]
    assert parser.parse_args_into_dataclasses(words, args_file_flag="--args").seed == 3


def test_values_by_name_and_from_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"output_dir": "out", "width_mult_list": [0.75, "2/3"], "batch_num_list": [1, None], "device": "cpu"}
    parser = PdArgumentParser(CompressionArguments)
    file = tmp_path / "options.json"
    file.write_text(json.dumps(values))
    for made in (parser.parse_dict(values), parser.parse_json_file(file)):
        assert made.width_mult_list == [Fraction(3, 4), Fraction(2, 3)]
        assert made.batch_num_list == [1, None]
    monkeypatch.setattr("sys.argv", ["script.py", str(file), "--batch_num_list", "4"])
    assert parser.parse_json_file_and_cmd_lines().batch_num_list == [4]
    with pytest.raises(UserError, match=r"no option 'outputdir'\. Did you mean 'output_dir'"):
        parser.parse_dict({"outputdir": "x"})
    assert parser.parse_dict({**values, "else": 1}, allow_extra_keys=True).output_dir == "out"
    file.write_text('{"output_dir":\n "out",}')
    with pytest.raises(UserError, match=r"options.json:2: The file is not JSON"):
        parser.parse_json_file(file)


YAML = """\
DefaultArgs:
  learning_rate: 3e-5
  batch_size: 64
  strategy: dynabert+ptq
  algo_list: [hist, mse]
  width_mult_list: [0.75, 2/3]
  do_train: True
SequenceClassification:
  clue afqmc: {num_train_epochs: 6}
  tnews: {num_train_epochs: 3, batch_size: 32, max_seq_length: 96}
"""


def test_a_configuration_file_lies_beneath_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "config.yml"
    file.write_text(YAML)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, data, made = three("--config", str(file), "--per_device_eval_batch_size", "8")
    assert (made.learning_rate, made.num_train_epochs, made.do_train) == (3e-5, 3.0, True)
    assert (made.per_device_train_batch_size, made.per_device_eval_batch_size) == (32, 8)
    assert (made.algo_list, made.width_mult_list) == (["hist", "mse"], [Fraction(3, 4), Fraction(2, 3)])
    assert (data.max_seq_length, made.max_seq_length) == (96, 96)
    _, _, made = three("--config", str(file), "--dataset", "clue afqmc", "--algo_list", "KL", "--learning_rate", "1e-4")
    assert (made.num_train_epochs, made.algo_list, made.learning_rate) == (6.0, ["KL"], 1e-4)


@pytest.mark.parametrize("name", ["overwrite", "overwrite_output_dir"])
def test_a_file_may_say_overwrite_by_both_names(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.yml").write_text(f"{name}: true\n")
    for made in (parsed("--config", str(tmp_path / "config.yml")), mine("--config", str(tmp_path / "config.yml"))):
        assert made.overwrite
        assert made.overwrite_output_dir
    parser = PdArgumentParser(CompressionArguments)
    assert parser.parse_dict({"output_dir": "out", name: True}).overwrite


def test_what_a_file_says_in_vain_is_told(tmp_path: Path) -> None:
    file = tmp_path / "config.yml"
    file.write_text("strategy: dynamic\nalgo_list: mse\ntrain_file: a.tsv\noutput_dir: there\n")
    with pytest.warns(ConfigWarning) as warned:
        made = PdArgumentParser(CompressionArguments).parse_yaml_file(file)
    assert (made.output_dir, made[0].set_fields) == ("there", {"strategy"})
    said = " ".join(str(warning.message) for warning in warned)
    assert "train_file (this script has no such option)" in said
    assert "algo_list (it is nothing to 'dynamic')" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("strategi: ptq", "config.yml:1, strategi: There is no option 'strategi'. Did you mean 'strategy'?"),
        ("seed: 1\nalgo_list: [msee]", "config.yml:2, algo_list: The '--algo_list' option cannot be 'msee'."),
        ("learning_rate: fast", "config.yml:1, learning_rate: The '--learning_rate' option must be a number."),
        ("save_steps: 0", "config.yml:1, save_steps: The '--save_steps' option must be at least 1."),
    ],
)
def test_mistakes_in_a_file_are_told_with_their_line(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "config.yml").write_text(text)
    with pytest.raises(UserError) as caught:
        parsed("--config", str(tmp_path / "config.yml"))
    assert said in str(caught.value)


def test_a_config_of_the_scripts_own_is_left_to_it(tmp_path: Path) -> None:
    @dataclass
    class Own:
        config: str | None = None

    parser = PdArgumentParser((Own, CompressionArguments))
    own, _ = parser.parse_args_into_dataclasses(["--output_dir", "out", "--config", "not-a-file.yml"])
    assert own.config == "not-a-file.yml"


@dataclass
class MyArguments(CompressionArguments):
    extra: int = 3


def test_a_dataclass_made_of_it_works_as_well() -> None:
    words = "--output_dir out --extra 4 --width_mult_list 2/3 --optim adamw --device cpu --warmup_ratio 0.1"
    made = PdArgumentParser(MyArguments).parse_args_into_dataclasses(words.split())
    assert (made.extra, made.width_mult_list, made.warmup_steps, made.use_cpu) == (4, [Fraction(2, 3)], 0.1, True)
    assert {"width_mult_list", "warmup_steps", "use_cpu"} <= made.set_fields
    with pytest.raises(UserError, match="'output_dir' option is needed"):
        MyArguments()


def test_help_tells_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    PdArgumentParser((ModelArguments, CompressionArguments)).print_help()
    shown = " ".join(capsys.readouterr().out.split())
    for part in ("100 % of it", "(default: ./best_models)", "as 3/4 or 0.75 (3/4)", "(default: 500)"):
        assert part in shown
