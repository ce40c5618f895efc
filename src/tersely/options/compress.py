"""Options of `tersely compress`: their values, read and checked one by one (together: `option_effects`)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

from ..engines import ENGINES
from ..errors import UserError, wrong_option
from ..quantize.calibrators import CALIBRATORS
from ..strategy import AT_RUN_TIME, FIXED, MOVING, STEPS, TRAINED, Plan, parse_all
from ..tasks.options import option
from .values import Reader, above, none_or, number, one_of, several, share, text, whole, word_or, yes_or_no

INT8_ENGINES = tuple(name for name, entry in ENGINES.items() if "int8" in entry.precisions)


@dataclass(frozen=True)
class CompressOptions:
    """How a model is made smaller. Texts, as a command line or a YAML file gives them, are read as what they say."""

    strategy: tuple[str, ...] = option(
        "steps joined by +: prune_embeddings, dynabert, qat, ptq, dynamic, embeddings; several strategies: repeat the "
        "flag (dynabert+ptq)",
        ("dynabert+ptq",),
    )
    width_mult_list: tuple[Fraction, ...] = option(
        "dynabert: shares of heads and neurons to keep, as 3/4 or 0.75 (3/4)", (Fraction(3, 4),)
    )
    depth_mult_list: tuple[Fraction, ...] = option("dynabert: shares of layers to keep (1)", (Fraction(1),))
    distill_hidden: float | None = option(
        "dynabert, qat: weight of the teacher's hidden states in the loss (dynabert 0.1, qat 0)"
    )
    distill_logits: float = option("dynabert, qat: weight of the teacher's answers in the loss (1)", 1.0)
    distill_temperature: float = option("dynabert, qat: temperature of these answers (1)", 1.0)
    label_loss: float | None = option("dynabert, qat: weight of the labels in the loss (dynabert 0, qat 1)")
    importance: str = option(
        "dynabert: what tells which heads and neurons matter: labels, or teacher where rows have none (labels)",
        "labels",
    )
    importance_rows: int = option("dynabert: training rows that tell it (512)", 512)
    teacher_model_name_or_path: str | None = option("dynabert, qat: model folder to learn from (the model itself)")
    resume_from_checkpoint: bool = option(
        "dynabert, qat: go on from where a run that was killed stood; false: begin anew (true)", True
    )
    max_vocab_size: int | None = option("prune_embeddings: tokens to keep, the most frequent (all in use)")
    algo_list: tuple[str, ...] = option(
        f"calibrators to try, of qat to start from: {', '.join(CALIBRATORS)} (mse KL min_max)", ("mse", "KL", "min_max")
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
        "each batch at run time, which is the graph of dynamic (ptq range_abs_max, qat moving_average_abs_max)"
    )
    moving_rate: float = option("weight of what came before in moving_average_abs_max (0.9)", 0.9)
    use_pact: bool = option("qat: learn where activations are clipped (true)", True)
    round_type: str = option("round, or adaround: the rounding of weights learned per layer (round)", "round")
    bias_correction: bool = option("shift biases by the mean error of their layer (false)", False)
    smooth: str | float = option("move outliers into weights: auto, off, or a strength from 0 to 1 (auto)", "auto")
    quantize_attention: str = option("INT8 for the products of attention: on, off, auto: where it pays (auto)", "auto")
    skip_layers: tuple[str, ...] = option("patterns of layers that stay float (*pooler*), or auto (none)", ())
    sensitivity: bool = option("report what each layer in INT8 costs (false)", False)
    max_drop: float | None = option("largest drop of the score, a fraction; exit code 1 if it cannot be met")
    origin_metric: float | None = option("score that the FP32 model must have, a fraction, or the run stops")
    origin_tolerance: float = option("how far off origin_metric it may be (0.05)", 0.05)
    engines: tuple[str, ...] | None = option(f"engines to write graphs for: {', '.join(INT8_ENGINES)} (all installed)")
    cpu_classes: str = option("all: right on every CPU; vnni: full 8-bit weights, wrong elsewhere (all)", "all")
    input_dtype: str = option("int64 or int32: type of the graphs' inputs (int64)", "int64")
    seed: int = option("draws the rows that calibrate and that screen, and all that training draws (42)", 42)
    input_infer_model_path: str | None = option("a bare ONNX graph instead of a model folder")

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, read_option(field.name, getattr(self, field.name)))
        for step in self.trained():
            losses = self.losses(step)
            if losses["distill_hidden"] == losses["distill_logits"] == losses["label_loss"] == 0:
                which = "The options '--distill_hidden', '--distill_logits' and '--label_loss'"
                what = f"{which} are all 0: nothing is learnt by {step}."
                raise UserError(what, hint="Set one of them above 0.", option="distill_hidden")
        if "auto" in self.skip_layers and len(self.skip_layers) > 1:
            raise wrong_option("skip_layers", "is patterns or the one word auto, not both.")

    def plans(self) -> tuple[Plan, ...]:
        """The strategies as plans."""
        return parse_all(self.strategy)

    def trained(self) -> tuple[str, ...]:
        """The steps of any strategy that train."""
        steps = {step for plan in self.plans() for step in plan.trained}
        return tuple(step for step in TRAINED if step in steps)

    def losses(self, step: str) -> dict[str, Any]:
        """The losses of a step that trains: what was set, and its own default for what was not.

        >>> CompressOptions(label_loss=0.5).losses("qat")
        {'distill_hidden': 0.0, 'distill_logits': 1.0, 'distill_temperature': 1.0, 'label_loss': 0.5}
        """
        own = STEPS[step].losses
        return {
            "distill_hidden": own["distill_hidden"] if self.distill_hidden is None else self.distill_hidden,
            "distill_logits": self.distill_logits,
            "distill_temperature": self.distill_temperature,
            "label_loss": own["label_loss"] if self.label_loss is None else self.label_loss,
        }

    def learns_from_labels(self, step: str) -> bool:
        """Whether a step that trains reads the labels of its rows: for its loss, or to see what matters."""
        sees_importance = "importance" in STEPS[step].options and self.importance == "labels"
        return bool(self.losses(step)["label_loss"] > 0) or sees_importance

    def activation_type(self, plan: Plan) -> str:
        """Where a plan's matmuls get the range of their inputs from."""
        usual = STEPS[plan.quantizer].ranges if plan.quantizer else None
        return self.activation_quantize_type or usual or AT_RUN_TIME


def read_option(name: str, value: Any) -> Any:
    """Read one option's value; None stands for itself where it is the default.

    >>> read_option("width_mult_list", "3/4 0.5")
    (Fraction(3, 4), Fraction(1, 2))
    """
    if value is None and CompressOptions.__dataclass_fields__[name].default is None:
        return None
    return READERS[name](name, value)


def _strategies(name: str, value: Any) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else tuple(value)
    parse_all(texts)
    return texts


def _calibrator(name: str, value: Any) -> str:
    """One of those in the table as it is now: a user's own may have come to it."""
    found: str = one_of(*CALIBRATORS)(name, value)
    return found


READERS: dict[str, Reader] = {
    "strategy": _strategies,
    "width_mult_list": several(share),
    "depth_mult_list": several(share),
    "distill_hidden": number(0),
    "distill_logits": number(0),
    "distill_temperature": above(0),
    "label_loss": number(0),
    "importance": one_of("labels", "teacher"),
    "importance_rows": whole(1),
    "teacher_model_name_or_path": text,
    "resume_from_checkpoint": yes_or_no,
    "max_vocab_size": whole(1),
    "algo_list": several(_calibrator),
    "calibration_rows": whole(1),
    "batch_size_list": several(whole(1)),
    "batch_num_list": several(none_or(whole(1))),
    "weight_quantize_type": one_of("channel_wise_abs_max", "abs_max"),
    "activation_quantize_type": one_of(FIXED, MOVING, AT_RUN_TIME),
    "moving_rate": number(0, 1, below=True),
    "use_pact": yes_or_no,
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
