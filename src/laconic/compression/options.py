"""Options of `laconic compress`: their values read and checked, and what has no effect refused by name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields
from typing import Any

from ..engines import ENGINES, installed
from ..errors import UserError, missing_package
from ..options import option
from ..strategy import Plan, parse_all
from .option_values import Reader, none_or, number, one_of, several, text, whole, word_or, yes_or_no

ALGORITHMS = ("KL", "abs_max", "min_max", "avg", "hist", "mse", "emd")
INT8_ENGINES = tuple(name for name, entry in ENGINES.items() if "int8" in entry.precisions)
MOVING = "moving_average_abs_max"
AT_RUN_TIME = "abs_max"


@dataclass(frozen=True)
class CompressOptions:
    """How a model is made smaller. Texts, as a command line or a YAML file gives them, are read as what they say."""

    strategy: tuple[str, ...] = option(
        "steps joined by +: ptq, dynamic, embeddings; several strategies: repeat the flag (ptq; dynabert+ptq will be "
        "the default once dynabert is offered)",
        ("ptq",),
    )
    algo_list: tuple[str, ...] = option(
        f"calibrators to try: {', '.join(ALGORITHMS)} (mse KL min_max)", ("mse", "KL", "min_max")
    )
    calibration_rows: int = option("rows to calibrate on, where neither list below is given (128)", 128)
    batch_size_list: tuple[int, ...] | None = option("with batch_num_list a grid of row counts, size times num (4)")
    batch_num_list: tuple[int | None, ...] | None = option("batches of each size; None: all rows (1)")
    weight_quantize_type: str = option(
        "channel_wise_abs_max: a scale per output; abs_max: one per weight (channel_wise_abs_max)",
        "channel_wise_abs_max",
    )
    activation_quantize_type: str | None = option(
        "range_abs_max: a fixed range; moving_average_abs_max: its moving average over batches; abs_max: the range of "
        "each batch at run time, which is the graph of dynamic (range_abs_max)"
    )
    moving_rate: float = option("weight of what came before in moving_average_abs_max (0.9)", 0.9)
    round_type: str = option("round, or adaround: the rounding of weights learned per layer (round)", "round")
    bias_correction: bool = option("shift biases by the mean error of their layer (false)", False)
    smooth: str | float = option("move outliers into weights: auto, off, or a strength from 0 to 1 (auto)", "auto")
    quantize_attention: str = option("INT8 for the two products of attention: auto, on, off (auto)", "auto")
    skip_layers: tuple[str, ...] = option("patterns of layers that stay float (*pooler*), or auto (none)", ())
    sensitivity: bool = option("report what each layer in INT8 costs (false)", False)
    max_drop: float | None = option("largest drop of the score, a fraction; exit code 1 if it cannot be met")
    origin_metric: float | None = option("score that the FP32 model must have, a fraction, or the run stops")
    origin_tolerance: float = option("how far off origin_metric it may be (0.05)", 0.05)
    engines: tuple[str, ...] | None = option(f"engines to write graphs for: {', '.join(INT8_ENGINES)} (all installed)")
    cpu_classes: str = option("all: right on every CPU; vnni: full 8-bit weights, wrong elsewhere (all)", "all")
    input_dtype: str = option("int64 or int32: type of the graphs' inputs (int64)", "int64")
    seed: int = option("draws the rows that calibrate and that screen (42)", 42)
    input_infer_model_path: str | None = option("a bare ONNX graph instead of a model folder")

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None or field.default is not None:
                object.__setattr__(self, field.name, READERS[field.name](field.name, value))
        if "auto" in self.skip_layers and len(self.skip_layers) > 1:
            raise UserError("The '--skip_layers' option is patterns or the one word auto, not both.")

    def plans(self) -> tuple[Plan, ...]:
        """The strategies as plans."""
        return parse_all(self.strategy)

    def activation_type(self, plan: Plan) -> str:
        """Where a plan's matmuls get the range of their inputs from."""
        by_strategy = {"ptq": "range_abs_max", "qat": MOVING}
        return self.activation_quantize_type or by_strategy.get(plan.quantizer or "", AT_RUN_TIME)


def resolve(options: CompressOptions, plans: Sequence[Plan]) -> tuple[tuple[Plan, ...], tuple[str, ...]]:
    """The plans that really run, and notes on those that changed.

    >>> from laconic.strategy import parse_all
    >>> plans, notes = resolve(CompressOptions(activation_quantize_type="abs_max"), parse_all("ptq"))
    >>> plans[0].name, notes[0]
    ('dynamic', "ptq runs as dynamic: with '--activation_quantize_type abs_max' ranges are taken at run time.")
    """
    notes, running = [], []
    for plan in plans:
        real = plan
        if plan.quantizer == "ptq" and options.activation_type(plan) == AT_RUN_TIME:
            real = plan.with_quantizer("dynamic")
            because = f"with '--activation_quantize_type {AT_RUN_TIME}' ranges are taken at run time"
            notes.append(f"{plan.name} runs as {real.name}: {because}.")
        running.append(real)
    return tuple(dict.fromkeys(running)), tuple(notes)


def check(
    options: CompressOptions,
    plans: Sequence[Plan],
    given: AbstractSet[str],
    *,
    scored: bool = True,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> None:
    """Refuse, by name, options that cannot have an effect together with the others.

    `given`: the names that the user set. `scored`: whether there are labelled eval rows. `bounds`: the metric's.

    >>> from laconic.strategy import parse_all
    >>> check(CompressOptions(smooth=0.5), parse_all("dynamic"), {"smooth"})
    Traceback (most recent call last):
    laconic.errors.UserError: The '--smooth' option (0.5) has no effect with the strategy 'dynamic'. It is for ptq.
    """
    _check_effect(options, plans, given)
    if "calibration_rows" in given and (options.batch_size_list or options.batch_num_list):
        _refuse("calibration_rows", "beside --batch_size_list and --batch_num_list, which say how many rows")
    if "moving_rate" in given and not any(options.activation_type(plan) == MOVING for plan in plans):
        _refuse("moving_rate", f"without --activation_quantize_type {MOVING}")
    if "origin_tolerance" in given and options.origin_metric is None:
        _refuse("origin_tolerance", "without --origin_metric")
    if not scored:
        for name in ("origin_metric", "max_drop"):
            if getattr(options, name) is not None:
                _refuse(name, "without labelled rows to score on", "Name them with --eval_file.")
    _check_fractions(options, bounds)
    if options.input_infer_model_path is not None:
        if "input_dtype" in given:
            _refuse("input_dtype", "with --input_infer_model_path: that graph has its own")
        for plan in plans:
            for step in plan.steps:
                if step not in ("ptq", "dynamic", "embeddings"):
                    what = f"The step '{step}' needs a model folder, not a bare graph (--input_infer_model_path)."
                    raise UserError(what, hint="A bare graph can have ptq, dynamic and embeddings.")
    for engine in options.engines or ():
        if engine not in installed():
            raise missing_package(ENGINES[engine].packages[0], f"--engines {engine}", ENGINES[engine].extra)


def _strategies(name: str, value: Any) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else tuple(value)
    parse_all(texts)
    return texts


READERS: dict[str, Reader] = {
    "strategy": _strategies,
    "algo_list": several(one_of(*ALGORITHMS)),
    "calibration_rows": whole(1),
    "batch_size_list": several(whole(1)),
    "batch_num_list": several(none_or(whole(1))),
    "weight_quantize_type": one_of("channel_wise_abs_max", "abs_max"),
    "activation_quantize_type": one_of("range_abs_max", MOVING, AT_RUN_TIME),
    "moving_rate": number(0, 1, below=True),
    "round_type": one_of("round", "adaround"),
    "bias_correction": yes_or_no,
    "smooth": word_or(("auto", "off"), number(0, 1)),
    "quantize_attention": one_of("auto", "on", "off"),
    "skip_layers": several(text, empty=True),
    "sensitivity": yes_or_no,
    "max_drop": number(0),
    "origin_metric": number(),
    "origin_tolerance": number(0),
    "engines": several(one_of(*INT8_ENGINES)),
    "cpu_classes": one_of("all", "vnni"),
    "input_dtype": one_of("int64", "int32"),
    "seed": whole(0, 2**32 - 1),
    "input_infer_model_path": text,
}
"""What each option may be."""

_STATIC, _INTEGER = {"ptq", "qat"}, {"ptq", "qat", "dynamic"}
EFFECT: dict[str, tuple[set[str], Any]] = {
    "algo_list": ({"ptq"}, None),
    "calibration_rows": ({"ptq"}, None),
    "batch_size_list": ({"ptq"}, None),
    "batch_num_list": ({"ptq"}, None),
    "weight_quantize_type": (_INTEGER, None),
    "activation_quantize_type": (_STATIC, AT_RUN_TIME),
    "moving_rate": (_STATIC, None),
    "round_type": ({"ptq"}, "round"),
    "bias_correction": ({"ptq"}, False),
    "smooth": ({"ptq"}, "off"),
    "quantize_attention": (_STATIC, "off"),
    "sensitivity": ({"ptq"}, False),
    "cpu_classes": (_INTEGER, "all"),
}
"""Which quantizers an option has an effect on, and the value that is true of all others anyway."""


def _check_effect(options: CompressOptions, plans: Sequence[Plan], given: AbstractSet[str]) -> None:
    running, notes = resolve(options, plans)
    quantizers = {plan.quantizer for plan in running}
    strategies = " or ".join(f"'{plan.name}'" for plan in plans)
    because = f"with the strategy {strategies}"
    if notes and "dynamic" not in {plan.quantizer for plan in plans}:
        because = f"with --activation_quantize_type {AT_RUN_TIME}, which is the graph of dynamic"
    for name, (effective, idle) in EFFECT.items():
        value = getattr(options, name)
        if name in given and value != idle and not effective & quantizers:
            where = " or ".join(sorted(effective & {"ptq", "dynamic"}))
            _refuse(name, because, f"It is for {where}.", value)
    if options.skip_layers == ("auto",) and "ptq" not in quantizers:
        _refuse("skip_layers", because, "Name patterns: auto is for ptq.", options.skip_layers)


def _refuse(name: str, because: str, hint: str = "Leave it out.", value: Any = None) -> None:
    shown = " ".join(map(str, value)) if isinstance(value, tuple) else value
    said = "" if value is None else f" ({shown})"
    raise UserError(f"The '--{name}' option{said} has no effect {because}.", hint=hint)


def _check_fractions(options: CompressOptions, bounds: tuple[float, float]) -> None:
    low, high = bounds
    limits = {"origin_metric": (low, high), "max_drop": (0.0, high), "origin_tolerance": (0.0, high)}
    for name, (least, most) in limits.items():
        value = getattr(options, name)
        # A drop of 100 points cannot be passed: who writes 1 means one point.
        beyond = value is not None and (not least <= value <= most or (name != "origin_metric" and value == most))
        if beyond:
            upper = "" if math.isinf(most) else f" to {most:g}" if name == "origin_metric" else f" to below {most:g}"
            points = most == 1 and 1 <= value <= 100
            hint = f"Scores are fractions: {value:g} in points is {value / 100:g}." if points else None
            raise UserError(f"The '--{name}' option must be from {least:g}{upper}. Got {value:g}.", hint=hint)
