"""`tersely compress --config`: a file beneath the command line, in every shape, and its mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from commands import Tersely
from compressible import Place
from tersely.cli import parser_of
from tersely.cli.compress import prepare
from tersely.errors import UserError

pytestmark = pytest.mark.usefixtures("short_timings")


@pytest.fixture
def understood(tmp_path: Path) -> Any:
    """What the command understands of a file and of words beside it: options, words for transformers, notes."""

    def understand(text: str, *words: str) -> tuple[dict[str, Any], list[str], list[str]]:
        file = tmp_path / "config.yml"
        file.write_text(text)
        parser, _ = parser_of("compress")
        arguments, rest = parser.parse_known_args(prepare(parser, ["--config", str(file), *words]))
        seen = {name: value for name, value in vars(arguments).items() if value is not None}
        return seen, rest, arguments.config_file.notes()

    return understand


TASK = """\
DefaultArgs: {learning_rate: 3e-5, num_train_epochs: 3, batch_size: 64, warmup_ratio: 0.0, warmup_steps: 0}
SequenceClassification:
  clue afqmc: {num_train_epochs: 6, batch_size: 32, neftune_noise_alpha: 0.8, eval_steps: 9}
  clue tnews: {}
"""


def test_the_command_line_wins(understood: Any) -> None:
    words = ["--dataset", "afqmc", "--output_dir", "out"]
    seen, rest, notes = understood(TASK, *words)
    assert (seen["learning_rate"], seen["num_train_epochs"], seen["per_device_train_batch_size"]) == (3e-5, 6.0, 32)
    assert rest == ["--neftune_noise_alpha=0.8"]
    assert any("clue afqmc.eval_steps (widths are scored every save_steps steps)" in note for note in notes)
    seen, rest, _ = understood(TASK, *words, "--num_train_epochs", "1", "--per_device_train_batch_size=2")
    assert (seen["num_train_epochs"], seen["per_device_train_batch_size"]) == (1.0, 2)
    assert seen["per_device_eval_batch_size"] == 32


def test_lists_on_the_command_line_replace_those_of_the_file(understood: Any) -> None:
    text = "output_dir: out\nalgo_list: [mse, KL]\nbatch_size_list: 4 8\nstrategy: [ptq, dynabert]\nmax_steps: 9"
    seen, _, _ = understood(text)
    assert (seen["algo_list"], seen["batch_size_list"]) == (["mse", "KL"], ["4", "8"])
    assert (seen["strategy"], seen["max_steps"]) == ([["ptq"], ["dynabert"]], 9)
    flags = ["--algo_list", "hist", "--strategy", "dynabert+ptq", "--calibration_rows", "64", "--num_train_epochs", "2"]
    seen, _, notes = understood(text, *flags)
    assert (seen["algo_list"], seen["strategy"]) == (["hist"], [["dynabert+ptq"]])
    assert "batch_size_list" not in seen
    assert "max_steps" not in seen
    assert any("batch_size_list (--calibration_rows is on the command line)" in note for note in notes)


def test_aliases_of_automatic_compression_work(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text("Global: {model_dir: m}\nTransformerPrune: {pruned_ratio: 0.25}")
    parser, _ = parser_of("compress")
    words = prepare(parser, ["--config_path", str(tmp_path / "a.yml"), "--save_dir", "out"])
    arguments, _ = parser.parse_known_args(words)
    assert (arguments.model_name_or_path, arguments.output_dir) == ("m", "out")
    assert (arguments.width_mult_list, arguments.strategy) == (["3/4"], [["dynabert"]])


def test_what_has_no_effect_with_the_strategy_is_left_out_and_named(understood: Any) -> None:
    text = "output_dir: out\nstrategy: ptq\nlearning_rate: 1e-4\nwidth_mult_list: 1/2\nalgo_list: mse\n"
    text += "neftune_noise_alpha: 0.8"
    seen, rest, notes = understood(text)
    assert "learning_rate" not in seen
    assert "width_mult_list" not in seen
    assert (seen["algo_list"], rest) == (["mse"], [])
    assert any("learning_rate, neftune_noise_alpha ('ptq' trains nothing)" in note for note in notes)
    assert any("width_mult_list (it is nothing to 'ptq')" in note for note in notes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("strategy: embedings", "config.yml:1, strategy: The strategy 'embedings' has an unknown step 'embedings'."),
        ("algo_list: [mse, KLL]", "config.yml:1, algo_list: The '--algo_list' option cannot be 'KLL'."),
        ("width_mult_list: [5/4]", "config.yml:1, width_mult_list: The '--width_mult_list' option must hold fractions"),
        ("bias_correction: perhaps", "config.yml:1, bias_correction: The '--bias_correction' option: expected true or"),
        ("learning_rate: fast", "The '--learning_rate' option must be a number. Got 'fast'."),
        ("max_seq_length: 12.5", "The '--max_seq_length' option must be a whole number. Got '12.5'."),
        ("learning_rate: [1, 2]", "The '--learning_rate' option takes one value. Got 2."),
        ("neftune_noise_alpha: big", "config.yml:1, neftune_noise_alpha: A training option cannot be taken"),
        ("lerning_rate: 1", "Did you mean 'learning_rate'?"),
        ("overwrite_output_dir: maybe", "expected true or false"),
    ],
)
def test_mistakes_are_told_with_their_place(text: str, said: str, understood: Any) -> None:
    with pytest.raises(UserError) as caught:
        understood(text, "--output_dir", "out")
    caught.value.on_command_line = True
    assert said in str(caught.value)


def test_a_file_runs_the_command(tersely: Tersely, place: Place, tmp_path: Path) -> None:
    file = tmp_path / "run.yml"
    lines = [f"input_infer_model_path: {place.graph}", f"train_file: {place.train}", f"eval_file: {place.dev}"]
    lines += ["strategy: ptq", "algo_list: [mse, KL]", "engines: onnxruntime", "smooth: off", "learning_rate: 1e-4"]
    file.write_text("\n".join([*lines, f"output_dir: {tmp_path / 'out'}"]))
    shown = tersely("compress", "--config", file, "--algo_list", "min_max", "--overwrite_cache", "--json")
    assert shown.code == 0, shown.err
    assert [candidate["name"] for candidate in shown.json["candidates"]] == ["min_max128"]
    assert "run.yml: without effect here: learning_rate ('ptq' trains nothing)." in shown.err
    assert "--overwrite_cache has no effect: nothing is cached." in shown.err
    assert json.loads((tmp_path / "out" / "result.json").read_text()) == shown.json


def test_what_goes_wrong_later_names_the_line_too(tersely: Tersely, place: Place, tmp_path: Path) -> None:
    file = tmp_path / "run.yml"
    words = ["compress", "--config", file, "--eval_file", place.dev, "--output_dir", tmp_path / "out"]
    file.write_text(f"strategy: ptq\nmax_drop: 2\ninput_infer_model_path: {place.graph}")
    shown = tersely(*words)
    assert shown.code == 2
    assert f"{file}:2, max_drop: The '--max_drop' option must be from 0 to below 1" in shown.err
    assert shown.err.count("\n") == 1
    assert not (tmp_path / "out").exists()
