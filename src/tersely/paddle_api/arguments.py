"""`CompressionArguments`: all options of compression beside those of transformers, in one object."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from fractions import Fraction
from functools import wraps
from typing import TYPE_CHECKING, Any

from transformers import TrainingArguments

from ..compression.divide import Data
from ..compression.request import Request
from ..errors import UserError, nearest, wrong_option
from ..options.compress import CompressOptions
from ..options.effects import trains
from ..tasks.options import TaskOptions
from ..training.arguments import DECIDED, WITHOUT_EFFECT, translated, use_cpu
from .fields import COMPRESS, TASK, TRAINING, OptionFields, read_field

TRANSLATED = ("device", "overwrite_output_dir", "warmup_ratio")
"""Options that are kept under another name: as `use_cpu`, as `overwrite` and as a `warmup_steps` below 1."""

OPTIM = TrainingArguments.__dataclass_fields__["optim"].default
"""What `adamw` stands for: transformers' own choice is the fastest form of it."""
NOT_OF_COMPRESS = {*DECIDED, *WITHOUT_EFFECT, "output_dir", "seed", "eval_steps"}
"""Fields that `train()`, `evaluate()` or the script itself read, and compression does not."""


class CompressionArguments(OptionFields):
    """`transformers.TrainingArguments` with the options of `tersely compress`, by the same names and defaults.

    Texts, numbers and lists are taken for what they say, when the object is made and when a field is set later: widths
    become fractions, lists lists. What cannot be is refused at once. `device` is a torch device when read, as in
    transformers; `warmup_ratio` is what `warmup_steps` says below 1.

    >>> arguments = CompressionArguments("out", strategy="ptq", width_mult_list="3/4 0.5", batch_num_list=[1, "None"])
    >>> arguments.width_mult_list, arguments.batch_num_list, arguments.save_steps
    ([Fraction(3, 4), Fraction(1, 2)], [1, None], 100)
    >>> arguments.algo_list = "msee"
    Traceback (most recent call last):
    tersely.errors.UserError: The 'algo_list' option cannot be 'msee'. Did you mean 'mse'?
    """

    if not TYPE_CHECKING:  # mypy and editors see the fields

        @wraps(OptionFields.__init__)
        def __init__(self, output_dir: str | None = None, **passed: Any) -> None:
            names = [*self.__dataclass_fields__, *TRANSLATED]
            for name in passed:
                if name not in names:
                    raise UserError(f"There is no option '{name}'.", hint=nearest(name, names))
            settings = _by_field(passed)
            try:
                super().__init__(output_dir=output_dir, **{"use_cpu": use_cpu(None), **settings})
            except (TypeError, ValueError) as error:
                raise UserError(f"A training option cannot be taken: {error}") from None
            is_copy = len(passed) >= len(self.__dataclass_fields__) - 1
            self.__dict__["set_fields"] = self._changed() if is_copy else set(settings)
            self.compress_options()

    def __post_init__(self) -> None:
        if vars(self)["output_dir"] is None:
            raise wrong_option("output_dir", "is needed.", hint="Say where results go.")
        super().__post_init__()
        if type(self).__init__ is not CompressionArguments.__init__:  # a dataclass that was made of this one
            self.__dict__["set_fields"] = self._changed()
            self.compress_options()

    set_fields: set[str]
    """Names of the fields that were set, when the object was made or later."""

    def __setattr__(self, name: str, value: Any) -> None:
        if (name, value) == ("optim", "adamw"):
            value = OPTIM
        if "set_fields" not in self.__dict__:  # while it is made, and translated already
            super().__setattr__(name, read_field(name, value))
            return
        if name == "device":
            self.__dict__.pop("_setup_devices", None)  # the device is found anew
        for field, converted in _by_field({name: value}).items():
            super().__setattr__(field, read_field(field, converted))
            if field in self.__dataclass_fields__:
                self.set_fields.add(field)

    @property
    def overwrite_output_dir(self) -> bool:  # type: ignore[override]
        """The same as `overwrite`."""
        return bool(self.overwrite)

    @property
    def warmup_ratio(self) -> float:  # type: ignore[override]
        """Steps of warm-up as a share of all steps; 0 where they are counted."""
        return float(self.warmup_steps) if self.warmup_steps < 1 else 0.0

    def compress_options(self) -> CompressOptions:
        """The options of compression, checked together."""
        settings = {name: getattr(self, name) for name in (*COMPRESS, "seed")}
        if self.resumes is not None:
            settings["resume_from_checkpoint"] = self.resumes
        return CompressOptions(**settings)

    @property
    def resumes(self) -> bool | None:
        """Whether compression goes on from where it was killed; None: not said. A path is for `train()`."""
        words = {"true": True, "false": False}
        return words.get(str(self.resume_from_checkpoint).lower())

    def to_dict(self) -> dict[str, Any]:
        """All fields in plain types; fractions as texts, which are read again."""
        return {name: _texts(value) for name, value in super().to_dict().items()}

    def print_config(self, args: Any = None, key: str = "") -> None:
        """Print options, one a line: those of compression and what else was set; or all of another dataclass.

        It changes none of them.

        >>> @dataclasses.dataclass
        ... class DataArguments:
        ...     dataset: str = "clue tnews"
        >>> CompressionArguments("out").print_config(DataArguments(), "Data")
        Data options
        dataset                        : clue tnews
        """
        if args is None:
            counts = COMPRESS | self.set_fields | {"output_dir"}
            shown = {name: value for name, value in self.to_dict().items() if name in counts}
        else:
            shown = {field.name: getattr(args, field.name) for field in dataclasses.fields(args)}
        title = key or ("Compression" if args is None else type(args).__name__)
        print(f"{title} options", *(f"{name:30} : {value}" for name, value in shown.items()), sep="\n")  # noqa: T201

    def _changed(self) -> set[str]:
        """Names of fields that are not at their defaults: all that a copy, which names every field, can tell."""
        usual, mine = CompressionArguments(self.output_dir).to_dict(), self.to_dict()
        return {name for name, value in usual.items() if mine[name] != value}


def request_of(arguments: CompressionArguments) -> Request:
    """The options of a compress run, as `tersely compress` makes them of flags; model and rows are to be filled in.

    Options of training count only where a strategy trains: the same arguments serve `train()`.
    """
    options, known = arguments.compress_options(), arguments.set_fields
    set_options = {name for name in known if name in COMPRESS or name == "seed"}
    if arguments.resumes is not None and "resume_from_checkpoint" in known:
        set_options.add("resume_from_checkpoint")
    names = sorted(name for name in known if name in TRAINING and name not in NOT_OF_COMPRESS)
    training = {name: getattr(arguments, name) for name in names} if trains(options.plans()) else {}
    task_options = TaskOptions(**{name: getattr(arguments, name) for name in TASK})
    overwrite = bool(arguments.overwrite)
    return Request(
        None, arguments.output_dir, Data(), options, frozenset(set_options), task_options, training, overwrite
    )


def _by_field(passed: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by the names of the fields that keep them, checked."""
    settings = dict(passed)
    if (replaces := settings.pop("overwrite_output_dir", None)) is not None:
        settings["overwrite"] = settings.get("overwrite") or replaces
    return translated(settings)


def _texts(value: Any) -> Any:
    if isinstance(value, list):
        return [_texts(item) for item in value]
    return str(value) if isinstance(value, Fraction) else value
