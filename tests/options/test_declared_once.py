"""A new option as an exercise: one declaration, and everything that users see of it comes from there."""

from __future__ import annotations

import argparse
import inspect
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_type_hints

import pytest

import tersely
from tersely.cli.arguments import Parser
from tersely.compression.divide import Data
from tersely.compression.request import Request
from tersely.errors import UserError
from tersely.options.compress import OPTIONS, CompressOptions
from tersely.options.data import DataOptions
from tersely.options.effects import check
from tersely.options.option import add_options, option, options_in, options_of
from tersely.options.readers import number
from tersely.options.training import TrainingOptions
from tersely.options.yaml import Asker, Flags, as_words, read_config, without_idle
from tersely.tasks.options import TaskOptions

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class WithToy(CompressOptions):
    """How a model is made smaller, and spiced."""

    spice: Literal["mild", "hot"] = option("mild or hot: how it is spiced", "mild", steps=("ptq",), idle="mild")
    salt: float | None = option("grams of salt", read=number(0, 5), default_text="to taste")


TOYS = [options_of(WithToy)[name] for name in ("spice", "salt")]


@pytest.fixture
def write_api(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "docs")
    import write_api

    return write_api


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    made = Parser(prog="tersely compress", allow_abbrev=False)
    add_options(made, WithToy)
    return made


def test_flags(parser: argparse.ArgumentParser) -> None:
    values = options_in(parser.parse_args(["--strategy", "ptq", "--spice", "hot", "--salt", "2"]), WithToy)
    assert values == {"strategy": ["ptq"], "spice": "hot", "salt": "2"}
    assert (WithToy(**values).spice, WithToy(**values).salt) == ("hot", 2.0)
    assert "mild or hot: how it is spiced (mild)" in parser.format_help()
    assert "grams of salt (to taste)" in parser.format_help()


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"spice": "hott"}, "option cannot be 'hott'. Did you mean 'hot'?"), ({"salt": 9}, "must be from 0 to 5. Got 9.")],
)
def test_values_that_cannot_be(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as caught:
        WithToy(**settings)
    assert said in str(caught.value)


@pytest.mark.parametrize("shape", ["strategy: {}\nspice: hot\n", "DefaultArgs: {{strategy: {}, spice: hot}}\n"])
def test_files_in_both_shapes(shape: str, parser: argparse.ArgumentParser, tmp_path: Path) -> None:
    for strategy, kept in (("ptq", ["--spice=hot"]), ("dynamic", [])):
        (tmp_path / "a.yml").write_text(shape.format(strategy))
        config = without_idle(read_config(tmp_path / "a.yml", Asker([*options_of(WithToy)])), None, kind=WithToy)
        assert as_words(config, Flags(parser)) == [f"--strategy={strategy}", *kept]
        assert any("spice (it is nothing to 'dynamic')" in note for note in config.notes()) == (not kept)


def test_effects() -> None:
    for strategy, value, refused in (("ptq", "hot", False), ("dynamic", "mild", False), ("dynamic", "hot", True)):
        options = WithToy(strategy=strategy, spice=value)  # type: ignore[arg-type]
        if refused:
            with pytest.raises(
                UserError, match=r"option \(hot\) has no effect with the strategy 'dynamic'. It is for ptq"
            ):
                check(options, options.plans(), {"spice"})
        else:
            check(options, options.plans(), {"spice", "salt"})


def test_settings_of_the_result() -> None:
    settings = Request("model", "out", Data(), WithToy(spice="hot"), {"spice"}).settings(Data())
    assert (settings["options"]["spice"], settings["options"]["salt"], settings["given"]) == ("hot", None, ["spice"])
    assert json.loads(json.dumps(settings)) == settings


def test_parameters_of_compress(write_api: Any) -> None:
    assert write_api.parameters(TOYS) == (
        '    spice: Literal["mild", "hot"] = "mild",\n'
        "    salt: float | None = None,\n"
    )  # fmt: skip
    text = write_api.described({option.name: write_api.sentence(option) for option in TOYS})
    assert text == (
        "        spice: mild or hot: how it is spiced. For ptq. Default: mild.\n"
        "        salt: Grams of salt. Default: to taste.\n"
    )


def test_fields_of_the_arguments(write_api: Any) -> None:
    assert write_api.fields(TOYS) == (
        '    spice: Literal["mild", "hot"] = field(default="mild", metadata=HELP["spice"])\n'
        '    """mild or hot: how it is spiced. For ptq. Default: mild."""\n'
        '    salt: float | None = field(default=None, metadata=HELP["salt"])\n'
        '    """Grams of salt. Default: to taste."""\n'
    )


def test_the_source_has_what_the_declarations_say(write_api: Any) -> None:
    for file in (write_api.CALL, write_api.FIELDS, *write_api.ABOUT_ROWS):
        assert write_api.START in file.read_text(encoding="utf-8")
        assert file.read_text(encoding="utf-8") == write_api.page(file), "run: make docs"


def test_compress_shows_every_option_with_type_default_and_meaning() -> None:
    parameters, text = inspect.signature(tersely.compress).parameters, inspect.getdoc(tersely.compress) or ""
    form = {
        name: option for name, option in options_of(DataOptions).items() if name == "header" or name.endswith("_column")
    }
    known = {**options_of(TrainingOptions), **OPTIONS, **options_of(TaskOptions), **form}
    assert set(known) <= set(parameters)
    for name, declared in known.items():
        assert f"\n    {name}: " in text
        assert (
            declared.value(parameters[name].default) == declared.default
            or declared.read(name, declared.default) == declared.default
        )
    assert not [parameter for parameter in parameters.values() if parameter.kind is parameter.VAR_KEYWORD]


def test_arguments_show_every_option_with_type_and_default() -> None:
    parameters = inspect.signature(tersely.CompressionArguments).parameters
    assert {*OPTIONS, *options_of(TaskOptions), "learning_rate", "overwrite"} <= set(parameters)
    assert parameters["calibration_rows"].default == 128
    assert get_type_hints(tersely.CompressionArguments)["round_type"] == Literal["round", "adaround"]
    assert not [parameter for parameter in parameters.values() if parameter.kind is parameter.VAR_KEYWORD]
