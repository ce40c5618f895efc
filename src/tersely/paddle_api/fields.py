"""Fields of `CompressionArguments`: the options of compression that transformers has not, or has with other defaults.

The fields are written here from the options' declarations, so that editors, `help()` and mypy see them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from transformers import TrainingArguments

from ..options.compress import OPTIONS
from ..options.option import option, options_of
from ..tasks.options import TaskOptions

__all__ = ["COMPRESS", "OTHER_DEFAULTS", "TASK", "TRAINING", "OptionFields", "ScriptOptions", "read_field"]

TRAINING = frozenset(TrainingArguments.__dataclass_fields__)
COMPRESS = frozenset(OPTIONS) - TRAINING
"""Options of compression that transformers has not: `seed` and `resume_from_checkpoint` are its own."""
TASK = frozenset(options_of(TaskOptions))
OTHER_DEFAULTS = ("save_steps", "logging_steps")
"""Where PaddleNLP's documents and transformers differ."""


@dataclass(frozen=True)
class ScriptOptions:
    """Options that only scripts have."""

    tensor_names: tuple[str, ...] | None = option("names of a row's tensors in order, where rows are tuples")
    overwrite: bool = option("replace an earlier result in output_dir", False, default_text="")
    do_compress: bool = option("read by scripts: compress the model", False, default_text="")
    do_export: bool = option("read by scripts: export the model", False, default_text="")


HELP: dict[str, dict[str, str]] = {
    name: {"help": declared.help.replace("%", "%%")}
    for options in (OPTIONS, options_of(TaskOptions), options_of(ScriptOptions))
    for name, declared in options.items()
} | {name: dict(TrainingArguments.__dataclass_fields__[name].metadata) for name in OTHER_DEFAULTS}
"""What the parser of transformers shows."""

if TYPE_CHECKING:
    Strategies = str | Iterable[str]
    Texts = str | Iterable[str]
    Shares = str | float | Fraction | Iterable[str | float | Fraction]
    Numbers = float | str | Iterable[float | str]
    Counts = int | str | Iterable[int | str | None]
    Strength = Literal["auto", "off"] | float
else:  # the parser of transformers takes texts and lists of texts, which are read later
    Strategies = Strength = str
    Texts = Shares = Numbers = Counts = list[str]


@dataclass(repr=False)
class OptionFields(TrainingArguments):  # type: ignore[misc]
    """`transformers.TrainingArguments` with the options of `tersely compress` as fields."""

    if TYPE_CHECKING:  # taken by name and kept in other fields: see `CompressionArguments`
        device: Any = None
        overwrite_output_dir: bool = False
        warmup_ratio: float = 0.0

    # generated from the options: make docs
    save_steps: float = field(default=100, metadata=HELP["save_steps"])
    """Score what is trained every so many steps. Default: 100."""
    logging_steps: float = field(default=500, metadata=HELP["logging_steps"])
    """How often the loss is taken. Default: 500."""
    strategy: Strategies = field(default="dynabert+ptq", metadata=HELP["strategy"])
    """Steps joined by +: prune_embeddings, prune, dynabert, qat, ptq, dynamic, embeddings; several strategies: repeat
    the flag, in Python a list; auto: a ladder of these, cheapest first, until the score would fall. Default:
    dynabert+ptq."""
    target_speedup: Numbers | None = field(default=None, metadata=HELP["target_speedup"])
    """Times as fast as FP32 that the artifact is to be; several give several candidates. For prune."""
    target_batch: int = field(default=16, metadata=HELP["target_batch"])
    """Rows a batch when that speed is measured. For prune. Default: 16."""
    target_length: int | None = field(default=None, metadata=HELP["target_length"])
    """Tokens a row when that speed is measured. For prune. Default: the mean of the eval rows."""
    target_threads: int = field(default=1, metadata=HELP["target_threads"])
    """Threads when that speed is measured. For prune. Default: 1."""
    latency_table: str | Path | None = field(default=None, metadata=HELP["latency_table"])
    """A table of what layers cost, from the result.json of an earlier run, instead of measuring. For prune."""
    width_mult_list: Shares = field(default_factory=lambda: [Fraction(3, 4)], metadata=HELP["width_mult_list"])
    """Shares of heads and neurons to keep, as 3/4 or 0.75. For dynabert. Default: 3/4."""
    depth_mult_list: Shares = field(default_factory=lambda: [Fraction(1, 1)], metadata=HELP["depth_mult_list"])
    """Shares of layers to keep. For dynabert. Default: 1."""
    distill_hidden: float | None = field(default=None, metadata=HELP["distill_hidden"])
    """Weight of the teacher's hidden states in the loss. For dynabert, qat. Default: dynabert 0.1, qat 0."""
    distill_logits: float = field(default=1.0, metadata=HELP["distill_logits"])
    """Weight of the teacher's answers in the loss. For dynabert, qat. Default: 1."""
    distill_temperature: float = field(default=1.0, metadata=HELP["distill_temperature"])
    """Temperature of these answers. For dynabert, qat. Default: 1."""
    label_loss: float | None = field(default=None, metadata=HELP["label_loss"])
    """Weight of the labels in the loss. For dynabert, qat. Default: dynabert 0, qat 1."""
    importance: Literal["labels", "teacher"] = field(default="labels", metadata=HELP["importance"])
    """What ranks heads and neurons: labels, or teacher where rows have none. For dynabert. Default: labels."""
    importance_rows: int = field(default=512, metadata=HELP["importance_rows"])
    """Training rows that rank heads and neurons. For dynabert. Default: 512."""
    teacher_model_name_or_path: str | Path | None = field(default=None, metadata=HELP["teacher_model_name_or_path"])
    """Model folder to learn from. For dynabert, qat. Default: the model itself."""
    max_vocab_size: int | None = field(default=None, metadata=HELP["max_vocab_size"])
    """Tokens to keep, the most frequent. For prune_embeddings. Default: all in use."""
    algo_list: Texts = field(default_factory=lambda: ["mse", "KL", "min_max"], metadata=HELP["algo_list"])
    """Calibrators to try, of qat to start from: KL, abs_max, min_max, avg, hist, mse, emd. For qat, ptq. Default: mse
    KL min_max."""
    calibration_rows: int = field(default=128, metadata=HELP["calibration_rows"])
    """Rows to calibrate on, where neither list below is given. For qat, ptq. Default: 128."""
    batch_size_list: Counts | None = field(default=None, metadata=HELP["batch_size_list"])
    """With batch_num_list a grid of row counts, size times num. For ptq. Default: 4."""
    batch_num_list: Counts | None = field(default=None, metadata=HELP["batch_num_list"])
    """Batches of each size; None: all rows. For ptq. Default: 1."""
    weight_quantize_type: Literal["channel_wise_abs_max", "abs_max"] = field(
        default="channel_wise_abs_max", metadata=HELP["weight_quantize_type"]
    )
    """channel_wise_abs_max: a scale per output; abs_max: one per weight. For qat, ptq, dynamic. Default:
    channel_wise_abs_max."""
    activation_quantize_type: Literal["range_abs_max", "moving_average_abs_max", "abs_max"] | None = field(
        default=None, metadata=HELP["activation_quantize_type"]
    )
    """range_abs_max: a fixed range; moving_average_abs_max: its moving average over batches; abs_max: the range of each
    batch at run time, which is the graph of dynamic. For qat, ptq. Default: ptq range_abs_max, qat
    moving_average_abs_max."""
    moving_rate: float = field(default=0.9, metadata=HELP["moving_rate"])
    """Weight of what came before in moving_average_abs_max. For qat, ptq. Default: 0.9."""
    use_pact: bool = field(default=True, metadata=HELP["use_pact"])
    """Learn where activations are clipped. For qat. Default: true."""
    round_type: Literal["round", "adaround"] = field(default="round", metadata=HELP["round_type"])
    """round, or adaround: the rounding of weights learned per layer. For ptq. Default: round."""
    bias_correction: bool = field(default=False, metadata=HELP["bias_correction"])
    """Shift biases by the mean error of their layer. For ptq. Default: false."""
    smooth: Strength = field(default="auto", metadata=HELP["smooth"])
    """Move outliers into weights: auto, off, or a strength from 0 to 1. For qat, ptq. Default: auto."""
    quantize_attention: Literal["auto", "on", "off"] = field(default="auto", metadata=HELP["quantize_attention"])
    """INT8 for the products of attention: on, off, auto: where it pays. For ptq. Default: auto."""
    skip_layers: Texts = field(default_factory=list, metadata=HELP["skip_layers"])
    """Patterns of layers that stay float (*pooler*), or auto. For qat, ptq, dynamic, embeddings. Default: none."""
    sensitivity: bool = field(default=False, metadata=HELP["sensitivity"])
    """Report what each layer in INT8 costs. For qat, ptq. Default: false."""
    max_drop: float | None = field(default=None, metadata=HELP["max_drop"])
    """Largest drop of the score, a fraction; exit code 1 if it cannot be met."""
    max_minutes: float | None = field(default=None, metadata=HELP["max_minutes"])
    """Minutes that the whole run may take; the best so far is the result."""
    prefer: Literal["speed", "score", "fidelity", "size"] = field(default="speed", metadata=HELP["prefer"])
    """What decides among candidates whose score holds: speed, score, fidelity or size. Default: speed."""
    origin_metric: float | None = field(default=None, metadata=HELP["origin_metric"])
    """Score that the FP32 model must have, a fraction, or the run stops."""
    origin_tolerance: float = field(default=0.05, metadata=HELP["origin_tolerance"])
    """How far off origin_metric it may be. Default: 0.05."""
    engines: Texts | None = field(default=None, metadata=HELP["engines"])
    """Engines to write graphs for: onnxruntime, openvino. Default: all installed."""
    cpu_classes: Literal["all", "vnni"] = field(default="all", metadata=HELP["cpu_classes"])
    """all: right on every CPU; vnni: full 8-bit weights, wrong elsewhere. For qat, ptq, dynamic. Default: all."""
    input_dtype: Literal["int64", "int32"] = field(default="int64", metadata=HELP["input_dtype"])
    """int64 or int32: type of the graphs' inputs. Default: int64."""
    input_infer_model_path: str | Path | None = field(default=None, metadata=HELP["input_infer_model_path"])
    """A bare ONNX graph instead of a model folder."""
    task: str | None = field(default=None, metadata=HELP["task"])
    """sequence_classification, multi_label_classification, regression, token_classification, question_answering (read
    from the model where it can be)."""
    metric: str | None = field(default=None, metadata=HELP["metric"])
    """The number that chooses; the task's own unless set."""
    max_seq_length: int | None = field(default=None, metadata=HELP["max_seq_length"])
    """Tokens a sequence may have (128; question answering 384)."""
    doc_stride: int | None = field(default=None, metadata=HELP["doc_stride"])
    """Tokens that two windows of one context share (128, at most half of the room)."""
    n_best_size: int | None = field(default=None, metadata=HELP["n_best_size"])
    """Starts and ends to look at for an answer (20)."""
    max_answer_length: int | None = field(default=None, metadata=HELP["max_answer_length"])
    """Tokens an answer may have (30)."""
    max_query_length: int | None = field(default=None, metadata=HELP["max_query_length"])
    """Tokens a question may have (64)."""
    null_score_diff_threshold: float | None = field(default=None, metadata=HELP["null_score_diff_threshold"])
    """How much better 'no answer' must be to be given (0)."""
    no_answer: bool | None = field(default=None, metadata=HELP["no_answer"])
    """Questions may have no answer, as in SQuAD 2."""
    answer_language: Literal["auto", "en", "zh"] | None = field(default=None, metadata=HELP["answer_language"])
    """auto, en (SQuAD's rule) or zh (CMRC 2018's rule)."""
    tensor_names: Texts | None = field(default=None, metadata=HELP["tensor_names"])
    """Names of a row's tensors in order, where rows are tuples."""
    overwrite: bool = field(default=False, metadata=HELP["overwrite"])
    """Replace an earlier result in output_dir."""
    do_compress: bool = field(default=False, metadata=HELP["do_compress"])
    """Read by scripts: compress the model."""
    do_export: bool = field(default=False, metadata=HELP["do_export"])
    """Read by scripts: export the model."""
    # end of generated


def read_field(name: str, value: Any) -> Any:
    """Read what an option was set to, as the field keeps it; refuse what cannot be."""
    if name in COMPRESS:
        return _plain(name, OPTIONS[name].value(value))
    if name in TASK:
        return getattr(TaskOptions(**{name: options_of(TaskOptions)[name].value(value)}), name)
    return value


def _plain(name: str, value: Any) -> Any:
    """Lists for tuples; one strategy as the text that it is, for scripts that look for a word in it."""
    if name == "strategy" and isinstance(value, tuple) and len(value) == 1:
        return value[0]
    return list(value) if isinstance(value, tuple) else value
