"""Options of `tersely compress`, each declared once: type, default, meaning, bounds, and the steps that it acts on.

How they act together is checked in `effects`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from ..engines import ENGINES
from ..errors import UserError, wrong_option
from ..quantize.calibrators import CALIBRATORS
from ..strategy import (
    AT_RUN_TIME,
    DYNABERT,
    DYNAMIC,
    EMBEDDINGS,
    PRUNE,
    PRUNE_EMBEDDINGS,
    PTQ,
    QAT,
    STEPS,
    Plan,
    parse_all,
)
from .option import option, options_of
from .readers import integer, none_or, number, one_of, path, several, share, text, word_or

AUTO = "auto"
LADDER = ("ptq+embeddings", "prune+ptq+embeddings", "prune+dynabert+ptq+embeddings", "qat+embeddings")
"""What `auto` tries, cheapest first."""
INT8_ENGINES = tuple(name for name, entry in ENGINES.items() if "int8" in entry.precisions)
LEARNING, CALIBRATING, INTEGER = (DYNABERT, QAT), (QAT, PTQ), (QAT, PTQ, DYNAMIC)
"""The steps that train, that calibrate on rows, that make integer matmuls."""


def _strategies(name: str, value: Any) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else tuple(value)
    if AUTO not in texts:
        parse_all(texts)
    elif len(texts) > 1:
        raise wrong_option(name, f"is {AUTO} or strategies, not both.", hint=f"{AUTO} tries them for you.")
    return texts


def _calibrator(name: str, value: Any) -> Any:
    """One of those in the table as it is now: a user's own may have come to it."""
    return one_of(*CALIBRATORS)(name, value)


@dataclass(frozen=True)
class CompressOptions:
    """How a model is made smaller. Texts, as a command line or a YAML file gives them, are read as what they say."""

    strategy: tuple[str, ...] = option(
        "steps joined by +: prune_embeddings, prune, dynabert, qat, ptq, dynamic, embeddings; several strategies: "
        "repeat the flag, in Python a list; auto: a ladder of these, cheapest first, until the score would fall",
        ("dynabert+ptq",),
        read=_strategies,
    )
    target_speedup: tuple[float, ...] | None = option(
        "prune: times as fast as FP32 that the artifact is to be; several give several candidates",
        read=several(number(1, above=True)),
        steps=(PRUNE,),
    )
    target_batch: int = option("rows a batch when that speed is measured", 16, read=integer(1), steps=(PRUNE,))
    target_length: int | None = option(
        "tokens a row when that speed is measured",
        read=integer(1),
        steps=(PRUNE,),
        default_text="the mean of the eval rows",
    )
    target_threads: int = option("threads when that speed is measured", 1, read=integer(1), steps=(PRUNE,))
    latency_table: str | None = option(
        "prune: a table of what layers cost, from the result.json of an earlier run, instead of measuring",
        read=path,
        steps=(PRUNE,),
    )
    width_mult_list: tuple[Fraction, ...] = option(
        "dynabert: shares of heads and neurons to keep, as 3/4 or 0.75",
        (Fraction(3, 4),),
        read=several(share),
        steps=(DYNABERT,),
    )
    depth_mult_list: tuple[Fraction, ...] = option(
        "dynabert: shares of layers to keep", (Fraction(1),), read=several(share), steps=(DYNABERT,)
    )
    distill_hidden: float | None = option(
        "dynabert, qat: weight of the teacher's hidden states in the loss",
        read=number(0),
        steps=LEARNING,
        default_text="dynabert 0.1, qat 0",
    )
    distill_logits: float = option(
        "dynabert, qat: weight of the teacher's answers in the loss", 1.0, read=number(0), steps=LEARNING
    )
    distill_temperature: float = option(
        "dynabert, qat: temperature of these answers", 1.0, read=number(0, above=True), steps=LEARNING
    )
    label_loss: float | None = option(
        "dynabert, qat: weight of the labels in the loss",
        read=number(0),
        steps=LEARNING,
        default_text="dynabert 0, qat 1",
    )
    importance: Literal["labels", "teacher"] = option(
        "dynabert: what ranks heads and neurons: labels, or teacher where rows have none",
        "labels",
        steps=(DYNABERT,),
    )
    importance_rows: int = option(
        "dynabert: training rows that rank heads and neurons", 512, read=integer(1), steps=(DYNABERT,)
    )
    teacher_model_name_or_path: str | None = option(
        "dynabert, qat: model folder to learn from", read=path, steps=LEARNING, default_text="the model itself"
    )
    resume_from_checkpoint: bool = option(
        "dynabert, qat: go on from where a run that was killed stood; false: begin anew", True, steps=LEARNING
    )
    max_vocab_size: int | None = option(
        "prune_embeddings: tokens to keep, the most frequent",
        read=integer(1),
        steps=(PRUNE_EMBEDDINGS,),
        default_text="all in use",
    )
    algo_list: tuple[str, ...] = option(
        f"calibrators to try, of qat to start from: {', '.join(CALIBRATORS)}",
        ("mse", "KL", "min_max"),
        read=several(_calibrator),
        steps=CALIBRATING,
    )
    calibration_rows: int = option(
        "rows to calibrate on, where neither list below is given", 128, read=integer(1), steps=CALIBRATING
    )
    batch_size_list: tuple[int, ...] | None = option(
        "with batch_num_list a grid of row counts, size times num",
        read=several(integer(1)),
        steps=(PTQ,),
        default_text="4",
    )
    batch_num_list: tuple[int | None, ...] | None = option(
        "batches of each size; None: all rows", read=several(none_or(integer(1))), steps=(PTQ,), default_text="1"
    )
    weight_quantize_type: Literal["channel_wise_abs_max", "abs_max"] = option(
        "channel_wise_abs_max: a scale per output; abs_max: one per weight", "channel_wise_abs_max", steps=INTEGER
    )
    activation_quantize_type: Literal["range_abs_max", "moving_average_abs_max", "abs_max"] | None = option(
        "range_abs_max: a fixed range; moving_average_abs_max: its moving average over batches; abs_max: the range of "
        "each batch at run time, which is the graph of dynamic",
        steps=CALIBRATING,
        idle=AT_RUN_TIME,
        default_text="ptq range_abs_max, qat moving_average_abs_max",
    )
    moving_rate: float = option(
        "weight of what came before in moving_average_abs_max", 0.9, read=number(0, 1, below=True), steps=CALIBRATING
    )
    use_pact: bool = option("qat: learn where activations are clipped", True, steps=(QAT,))
    round_type: Literal["round", "adaround"] = option(
        "round, or adaround: the rounding of weights learned per layer", "round", steps=(PTQ,), idle="round"
    )
    bias_correction: bool = option("shift biases by the mean error of their layer", False, steps=(PTQ,), idle=False)
    smooth: Literal["auto", "off"] | float = option(
        "move outliers into weights: auto, off, or a strength from 0 to 1",
        "auto",
        read=word_or(("auto", "off"), number(0, 1)),
        steps=CALIBRATING,
        idle="off",
    )
    quantize_attention: Literal["auto", "on", "off"] = option(
        "INT8 for the products of attention: on, off, auto: where it pays", "auto", steps=(PTQ,), idle="off"
    )
    skip_layers: tuple[str, ...] = option(
        "patterns of layers that stay float (*pooler*), or auto",
        (),
        read=several(text, empty=True),
        steps=(*INTEGER, EMBEDDINGS),
        idle=(),
    )
    sensitivity: bool = option("report what each layer in INT8 costs", False, steps=CALIBRATING, idle=False)
    max_drop: float | None = option(
        "largest drop of the score, a fraction; exit code 1 if it cannot be met", read=number(0)
    )
    max_minutes: float | None = option(
        "minutes that the whole run may take; the best so far is the result",
        read=number(0, above=True),
    )
    prefer: Literal["speed", "score", "fidelity", "size"] = option(
        "what decides among candidates whose score holds: speed, score, fidelity or size", "speed"
    )
    origin_metric: float | None = option(
        "score that the FP32 model must have, a fraction, or the run stops", read=number()
    )
    origin_tolerance: float = option("how far off origin_metric it may be", 0.05, read=number(0))
    engines: tuple[str, ...] | None = option(
        f"engines to write graphs for: {', '.join(INT8_ENGINES)}",
        read=several(one_of(*INT8_ENGINES)),
        default_text="all installed",
    )
    cpu_classes: Literal["all", "vnni"] = option(
        "all: right on every CPU; vnni: full 8-bit weights, wrong elsewhere", "all", steps=INTEGER, idle="all"
    )
    input_dtype: Literal["int64", "int32"] = option("int64 or int32: type of the graphs' inputs", "int64")
    seed: int = option(
        "draws the rows that calibrate and that screen, and all that training draws", 42, read=integer(0, 2**32 - 1)
    )
    input_infer_model_path: str | None = option("a bare ONNX graph instead of a model folder", read=path)

    def __post_init__(self) -> None:
        for name, declared in options_of(type(self)).items():
            object.__setattr__(self, name, declared.value(getattr(self, name)))
        for step in self.trained():
            losses = self.losses(step)
            if losses["distill_hidden"] == losses["distill_logits"] == losses["label_loss"] == 0:
                which = "The options '--distill_hidden', '--distill_logits' and '--label_loss'"
                what = f"{which} are all 0: nothing is learnt by {step}."
                raise UserError(what, hint="Set one of them above 0.", option="distill_hidden")
        if "auto" in self.skip_layers and len(self.skip_layers) > 1:
            raise wrong_option("skip_layers", "is patterns or the one word auto, not both.")

    @property
    def is_auto(self) -> bool:
        """Whether a ladder of strategies is tried."""
        return self.strategy == (AUTO,)

    @property
    def searches(self) -> bool:
        """Whether speed-ups are looked for, not given: by `auto`, or where `prune` has a largest drop instead."""
        prunes = self.is_auto or any(PRUNE in plan.steps for plan in self.plans())
        return prunes and self.target_speedup is None

    def plans(self) -> tuple[Plan, ...]:
        """The strategies as plans; of `auto` all that it may try."""
        return parse_all(LADDER if self.is_auto else self.strategy)

    def trained(self) -> tuple[str, ...]:
        """The steps of any strategy that train."""
        steps = {step for plan in self.plans() for step in plan.trained}
        return tuple(step for step in STEPS if step in steps)

    def losses(self, step: str) -> dict[str, Any]:
        """The losses of a step that trains: what was set, and its own default for what was not.

        >>> CompressOptions(label_loss=0.5).losses("qat")
        {'distill_hidden': 0.0, 'distill_logits': 1.0, 'distill_temperature': 1.0, 'label_loss': 0.5}
        """
        names = ("distill_hidden", "distill_logits", "distill_temperature", "label_loss")
        values = {name: getattr(self, name) for name in names}
        return {name: STEPS[step].losses[name] if value is None else value for name, value in values.items()}

    def distils(self, step: str) -> bool:
        """Whether a step that trains learns from a teacher."""
        losses = self.losses(step)
        return bool(losses["distill_hidden"] or losses["distill_logits"])

    def learns_from_labels(self, plan: Plan) -> bool:
        """Whether a plan reads the labels of training rows: for a loss, or to see what matters in the model.

        After `prune` nothing is left to see: its shapes stand.

        >>> options = CompressOptions()
        >>> [options.learns_from_labels(plan) for plan in parse_all(("dynabert", "prune+dynabert", "qat", "ptq"))]
        [True, False, True, False]
        """
        sees = self.importance == "labels" and DYNABERT in plan.steps and PRUNE not in plan.steps
        return sees or any(self.losses(step)["label_loss"] > 0 for step in plan.trained)

    def activation_type(self, plan: Plan) -> str:
        """Where a plan's matmuls get the range of their inputs from."""
        usual = STEPS[plan.quantizer].ranges if plan.quantizer else None
        return self.activation_quantize_type or usual or AT_RUN_TIME


OPTIONS = options_of(CompressOptions)
"""Every option of compression by its name."""
