"""`tersely.compress`: the whole run as one call, with files or with rows in memory."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import partial, wraps
from pathlib import Path
from typing import Any, Literal, ParamSpec

from ..data import Rows, rows_of, texts_of
from ..errors import UserError, existing, nearest, wrong_option
from ..options.compress import OPTIONS, CompressOptions
from ..options.option import options_of
from ..options.training import TrainingOptions
from ..processes import together
from ..progress import Progress, shown
from ..tasks import Columns
from ..tasks.options import TaskOptions
from . import story
from .divide import UnreadData
from .request import Request
from .result import CompressionResult

Parameters = ParamSpec("Parameters")


def _run_with_passed(signature: Callable[Parameters, CompressionResult]) -> Callable[Parameters, CompressionResult]:
    """Turn a signature into a function that runs with the parameters that the caller passed.

    Options that can have no effect are refused only where they were passed, so defaults must not hide which ones were.
    """
    known = inspect.signature(signature)

    @wraps(signature)
    def call(*places: Parameters.args, **named: Parameters.kwargs) -> CompressionResult:
        passed: dict[str, Any] = dict(named)
        if passed.pop("overwrite_output_dir", False):  # the older name
            passed["overwrite"] = True
        for name in passed:
            if name not in known.parameters:
                raise _unknown(name, known.parameters)
        passed = known.bind(*places, **passed).arguments
        progress = shown(passed.pop("progress", None))
        return together(lambda: story.compress(_request(passed), progress))

    return call


@_run_with_passed
def compress(
    model: str | Path | None = None,
    *,
    output_dir: str | Path,
    train_file: str | Path | Iterable[Mapping[str, Any]] | None = None,
    eval_file: str | Path | Iterable[Mapping[str, Any]] | None = None,
    test_file: str | Path | Iterable[Mapping[str, Any]] | None = None,
    unlabelled_file: str | Path | Iterable[Mapping[str, Any]] | None = None,
    # generated from the options: make docs
    strategy: str | Iterable[str] = "dynabert+ptq",
    target_speedup: float | str | Iterable[float | str] | None = None,
    target_batch: int = 16,
    target_length: int | None = None,
    target_threads: int = 1,
    latency_table: str | Path | None = None,
    width_mult_list: str | float | Fraction | Iterable[str | float | Fraction] = "3/4",
    depth_mult_list: str | float | Fraction | Iterable[str | float | Fraction] = "1",
    distill_hidden: float | None = None,
    distill_logits: float = 1.0,
    distill_temperature: float = 1.0,
    label_loss: float | None = None,
    importance: Literal["labels", "teacher"] = "labels",
    importance_rows: int = 512,
    teacher_model_name_or_path: str | Path | None = None,
    resume_from_checkpoint: bool = True,
    max_vocab_size: int | None = None,
    algo_list: str | Iterable[str] = ("mse", "KL", "min_max"),
    calibration_rows: int = 128,
    batch_size_list: int | str | Iterable[int | str] | None = None,
    batch_num_list: int | str | Iterable[int | str | None] | None = None,
    weight_quantize_type: Literal["channel_wise_abs_max", "abs_max"] = "channel_wise_abs_max",
    activation_quantize_type: Literal["range_abs_max", "moving_average_abs_max", "abs_max"] | None = None,
    moving_rate: float = 0.9,
    use_pact: bool = True,
    round_type: Literal["round", "adaround"] = "round",
    bias_correction: bool = False,
    smooth: Literal["auto", "off"] | float = "auto",
    quantize_attention: Literal["auto", "on", "off"] = "auto",
    skip_layers: str | Iterable[str] = (),
    sensitivity: bool = False,
    max_drop: float | None = None,
    max_minutes: float | None = None,
    prefer: Literal["speed", "score", "fidelity", "size"] = "speed",
    origin_metric: float | None = None,
    origin_tolerance: float = 0.05,
    engines: str | Iterable[str] | None = None,
    cpu_classes: Literal["all", "vnni"] = "all",
    input_dtype: Literal["int64", "int32"] = "int64",
    seed: int = 42,
    input_infer_model_path: str | Path | None = None,
    task: str | None = None,
    metric: str | None = None,
    max_seq_length: int | None = None,
    doc_stride: int | None = None,
    n_best_size: int | None = None,
    max_answer_length: int | None = None,
    max_query_length: int | None = None,
    null_score_diff_threshold: float | None = None,
    no_answer: bool | None = None,
    answer_language: Literal["auto", "en", "zh"] | None = None,
    header: bool | None = None,
    text_column: str | None = None,
    text_pair_column: str | None = None,
    label_column: str | None = None,
    words_column: str | None = None,
    tags_column: str | None = None,
    question_column: str | None = None,
    context_column: str | None = None,
    answers_column: str | None = None,
    num_train_epochs: float = 3.0,
    max_steps: int = -1,
    per_device_train_batch_size: int = 8,
    per_device_eval_batch_size: int = 8,
    gradient_accumulation_steps: int = 1,
    learning_rate: float = 5e-05,
    weight_decay: float = 0.0,
    adam_beta1: float = 0.9,
    adam_beta2: float = 0.999,
    adam_epsilon: float = 1e-08,
    max_grad_norm: float = 1.0,
    warmup_steps: float = 0,
    warmup_ratio: float = 0.0,
    device: str | None = None,
    optim: str = "adamw",
    lr_scheduler_type: str = "linear",
    save_steps: int = 100,
    logging_steps: int = 500,
    bf16: bool = False,
    # end of generated
    training_args: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    progress: Progress | bool | None = None,
) -> CompressionResult:
    """Make a fine-tuned model small and fast, score every candidate on your rows, keep the best in output_dir/best.

    Needs a few minutes for a small encoder, and the training besides where a strategy trains (`dynabert`, `qat`).

    Args:
        model: Fine-tuned transformers folder. Not needed with `input_infer_model_path`.
        output_dir: Where best/, candidates/, torch/ (what was pruned), result.json and report.html go.
        train_file: Rows to train and calibrate on: a path (csv, tsv, json, jsonl, parquet, CoNLL txt, SQuAD json), a
            `datasets.Dataset`, or a list of mappings.
        eval_file: Rows that score and choose, likewise.
        test_file: Rows that choose nothing and report at the end, likewise.
        unlabelled_file: Rows without labels, likewise, or plain text with a text a line. They join what learns from a
            teacher and what needs no labels: the distillation of `dynabert` and `qat`, the statistics of `prune`, the
            tokens of `prune_embeddings`; without `train_file` the calibration too.
        strategy: Steps joined by +: prune_embeddings, prune, dynabert, qat, ptq, dynamic, embeddings; several
            strategies: repeat the flag, in Python a list; auto: a ladder of these, cheapest first, until the score
            would fall. Default: dynabert+ptq.
        target_speedup: Times as fast as FP32 that the artifact is to be; several give several candidates. For prune.
        target_batch: Rows a batch when that speed is measured. For prune. Default: 16.
        target_length: Tokens a row when that speed is measured. For prune. Default: the mean of the eval rows.
        target_threads: Threads when that speed is measured. For prune. Default: 1.
        latency_table: A table of what layers cost, from the result.json of an earlier run, instead of measuring. For
            prune.
        width_mult_list: Shares of heads and neurons to keep, as 3/4 or 0.75. For dynabert. Default: 3/4.
        depth_mult_list: Shares of layers to keep. For dynabert. Default: 1.
        distill_hidden: Weight of the teacher's hidden states in the loss. For dynabert, qat. Default: dynabert 0.1, qat
            0.
        distill_logits: Weight of the teacher's answers in the loss. For dynabert, qat. Default: 1.
        distill_temperature: Temperature of these answers. For dynabert, qat. Default: 1.
        label_loss: Weight of the labels in the loss. For dynabert, qat. Default: dynabert 0, qat 1.
        importance: What ranks heads and neurons: labels, or teacher where rows have none. For dynabert. Default:
            labels.
        importance_rows: Training rows that rank heads and neurons. For dynabert. Default: 512.
        teacher_model_name_or_path: Model folder to learn from. For dynabert, qat. Default: the model itself.
        resume_from_checkpoint: Go on from where a run that was killed stood; false: begin anew. For dynabert, qat.
            Default: true.
        max_vocab_size: Tokens to keep, the most frequent. For prune_embeddings. Default: all in use.
        algo_list: Calibrators to try, of qat to start from: KL, abs_max, min_max, avg, hist, mse, emd. For qat, ptq.
            Default: mse KL min_max.
        calibration_rows: Rows to calibrate on, where neither list below is given. For qat, ptq. Default: 128.
        batch_size_list: With batch_num_list a grid of row counts, size times num. For ptq. Default: 4.
        batch_num_list: Batches of each size; None: all rows. For ptq. Default: 1.
        weight_quantize_type: channel_wise_abs_max: a scale per output; abs_max: one per weight. For qat, ptq, dynamic.
            Default: channel_wise_abs_max.
        activation_quantize_type: range_abs_max: a fixed range; moving_average_abs_max: its moving average over batches;
            abs_max: the range of each batch at run time, which is the graph of dynamic. For qat, ptq. Default: ptq
            range_abs_max, qat moving_average_abs_max.
        moving_rate: Weight of what came before in moving_average_abs_max. For qat, ptq. Default: 0.9.
        use_pact: Learn where activations are clipped. For qat. Default: true.
        round_type: round, or adaround: the rounding of weights learned per layer. For ptq. Default: round.
        bias_correction: Shift biases by the mean error of their layer. For ptq. Default: false.
        smooth: Move outliers into weights: auto, off, or a strength from 0 to 1. For qat, ptq. Default: auto.
        quantize_attention: INT8 for the products of attention: on, off, auto: where it pays. For ptq. Default: auto.
        skip_layers: Patterns of layers that stay float (*pooler*), or auto. For qat, ptq, dynamic, embeddings. Default:
            none.
        sensitivity: Report what each layer in INT8 costs. For qat, ptq. Default: false.
        max_drop: Largest drop of the score, a fraction; exit code 1 if it cannot be met.
        max_minutes: Minutes that the whole run may take; the best so far is the result.
        prefer: What decides among candidates whose score holds: speed, score, fidelity or size. Default: speed.
        origin_metric: Score that the FP32 model must have, a fraction, or the run stops.
        origin_tolerance: How far off origin_metric it may be. Default: 0.05.
        engines: Engines to write graphs for: onnxruntime, openvino. Default: all installed.
        cpu_classes: all: right on every CPU; vnni: full 8-bit weights, wrong elsewhere. For qat, ptq, dynamic. Default:
            all.
        input_dtype: int64 or int32: type of the graphs' inputs. Default: int64.
        seed: Draws the rows that calibrate and that screen, and all that training draws. Default: 42.
        input_infer_model_path: A bare ONNX graph instead of a model folder.
        task: sequence_classification, multi_label_classification, regression, token_classification, question_answering
            (read from the model where it can be).
        metric: The number that chooses; the task's own unless set.
        max_seq_length: Tokens a sequence may have (128; question answering 384).
        doc_stride: Tokens that two windows of one context share (128, at most half of the room).
        n_best_size: Starts and ends to look at for an answer (20).
        max_answer_length: Tokens an answer may have (30).
        max_query_length: Tokens a question may have (64).
        null_score_diff_threshold: How much better 'no answer' must be to be given (0).
        no_answer: Questions may have no answer, as in SQuAD 2.
        answer_language: auto, en (SQuAD's rule) or zh (CMRC 2018's rule).
        header: Whether csv and tsv files begin with column names (seen by itself unless set).
        text_column: Column of the text.
        text_pair_column: Column of the second text.
        label_column: Column of the label.
        words_column: Column of the words.
        tags_column: Column of the tags.
        question_column: Column of the question.
        context_column: Column of the context.
        answers_column: Column of the answers.
        num_train_epochs: Passes over the training rows. Default: 3.
        max_steps: Stop after so many steps.
        per_device_train_batch_size: Rows a training step. Default: 8; 16 after prune.
        per_device_eval_batch_size: Rows a batch when scoring what is trained. Default: 8.
        gradient_accumulation_steps: Batches a step. Default: 1.
        learning_rate: Peak learning rate. Default: 5e-5; after prune found.
        weight_decay: Weight decay. Default: 0.
        adam_beta1: AdamW's beta1. Default: 0.9.
        adam_beta2: AdamW's beta2. Default: 0.999.
        adam_epsilon: AdamW's epsilon. Default: 1e-8.
        max_grad_norm: Gradients are scaled down to this norm. Default: 1.
        warmup_steps: Steps of warm-up, below 1 a share of all. Default: 0; 0.05 after prune.
        warmup_ratio: Steps of warm-up as a share of all steps. Default: 0.
        device: Where to train: cpu or gpu. Default: the best there is.
        optim: adamw, sgd, adafactor … Default: adamw.
        lr_scheduler_type: linear, cosine, constant … Default: linear.
        save_steps: Score what is trained every so many steps. Default: 100.
        logging_steps: How often the loss is taken. Default: 500.
        bf16: Train in bf16, on CPUs that have it. Default: after prune where it can.
        training_args: Further options of `transformers.TrainingArguments` by name, where a strategy trains.
        overwrite: Replace an earlier result in output_dir. Default: false.
        progress: A `Progress` of your own; None shows a bar on a terminal, False nothing.

    Returns:
        The best artifact, everything that was tried, and the rule that chose. Where `max_drop` cannot be met everything
        is written all the same and `result.met` is False; `result.expect_met()` makes an error of that.

    Raises:
        UserError: An option, a file or the model cannot be taken, or an option can have no effect. Nothing was written.

    Example:
        >>> import tersely
        >>> tersely.compress("my-model", output_dir="out", eval_file="dev.tsv", algo_list="msse")
        Traceback (most recent call last):
        tersely.errors.UserError: The 'algo_list' option cannot be 'msse'. Did you mean 'mse'?
    """
    raise NotImplementedError  # `_run_with_passed` runs it


def _request(passed: Mapping[str, Any]) -> Request:
    """The parameters that the caller passed, as a request."""
    options = {name: value for name, value in passed.items() if name in OPTIONS}
    task = {name: option.value(passed[name]) for name, option in options_of(TaskOptions).items() if name in passed}
    columns = {name: passed.get(f"{name}_column") for name in Columns.__dataclass_fields__}
    checked, task_options, training = CompressOptions(**options), TaskOptions(**task), _training(passed)
    header, files = passed.get("header"), [passed.get(name) for name in ("train_file", "eval_file", "test_file")]
    texts = passed.get("unlabelled_file")
    if header is not None and not any(isinstance(rows, (str, Path)) for rows in (*files, texts)):
        raise wrong_option("header", "has no effect without a file.", hint="Leave it out.")
    train, evaluation, test = (_reader(rows, header) for rows in files)
    return Request(
        passed.get("model"),
        passed["output_dir"],
        UnreadData(train, evaluation, test, Columns(**columns), _reader(texts, header, texts_of)),
        checked,
        frozenset(options),
        task_options,
        training,
        bool(passed.get("overwrite", False)),
    )


def _training(passed: Mapping[str, Any]) -> dict[str, Any]:
    """Options of training: the usual ones, and further ones in `training_args`."""
    usual = {name: option.value(passed[name]) for name, option in options_of(TrainingOptions).items() if name in passed}
    further = dict(passed.get("training_args") or {})
    names = _training_names() if further else []
    for name in further:
        if name in OPTIONS or name in usual:
            raise wrong_option(name, "is a parameter of its own.", hint="Leave it out of 'training_args'.")
        if name not in names:
            raise UserError(f"There is no option '{name}' of training.", hint=nearest(name, names), option=name)
    training = {**usual, **further}
    return {name: value for name, value in training.items() if value is not None and name not in OPTIONS}


def _unknown(name: str, known: Iterable[str]) -> UserError:
    what = f"There is no option '{name}'."
    if name in _training_names():
        hint = f"It is one of transformers: write training_args={{'{name}': …}}."
        return UserError(what, hint=hint, option=name)
    return UserError(what, hint=nearest(name, [*known]), option=name)


def _training_names() -> list[str]:
    """Options of transformers, which is imported only where one of them might be meant; and two of ours."""
    from transformers import TrainingArguments

    return [*dict.fromkeys((*options_of(TrainingOptions), *TrainingArguments.__dataclass_fields__))]


def _reader(rows: Any, header: bool | None, read: Callable[..., Rows] = rows_of) -> Callable[[], Rows] | None:
    """A function that reads the rows of a file, or of objects in memory; a missing file is refused at once."""
    if isinstance(rows, (str, Path)):
        existing(rows, "file")
    return None if rows is None else partial(read, rows, header)
