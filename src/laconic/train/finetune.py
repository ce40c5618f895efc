"""Fine-tune an encoder on a task from rows, thin over `transformers.Trainer`."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    PreTrainedModel,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_callback import PrinterCallback

from .. import __version__, folder, tasks
from ..artifact import sha256
from ..data.rows import Rows
from ..engines.cpu import cpu
from ..engines.torch import check_finite, input_names
from ..errors import Failure, UserError
from ..measure.score import Score, score
from ..options import KINDS, TaskOptions
from ..progress import SILENT, Progress
from ..tasks import Columns, Encoder, Task
from ..tasks.sequence_classification import PRIMARY
from ..whole import check_destination, whole_folder
from .batches import Collator, FeatureDataset
from .disk import as_os_errors
from .isolated import isolated
from .labels import find_labels
from .settings import checked
from .task_trainer import ShowProgress, TaskTrainer, last_checkpoint

MODELS = {
    "sequence_classification": AutoModelForSequenceClassification,
    "token_classification": AutoModelForTokenClassification,
    "question_answering": AutoModelForQuestionAnswering,
}
RUN = "run.txt"
"""File in the work folder that says, by a hash, what its checkpoints are of."""


@dataclass(frozen=True)
class Finetuned:
    """Where the model lies, its task, and its score on the eval rows (those that chose its checkpoint)."""

    folder: Path
    task: Task
    score: Score
    steps: int


def finetune(
    model_name_or_path: str | Path,
    train: Rows,
    evaluation: Rows,
    output_dir: str | Path,
    *,
    options: TaskOptions,
    columns: Columns | None = None,
    training: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    progress: Progress = SILENT,
) -> Finetuned:
    """Train, keep the best checkpoint by the task's metric, write an ordinary transformers folder.

    `training` holds options of `transformers.TrainingArguments`. A run that was killed goes on from its last whole
    checkpoint when it is started again with the same input.
    """
    work = _work_folder(Path(output_dir))
    _forget_finished(work, Path(output_dir))
    check_destination(output_dir, overwrite=overwrite)
    columns = columns or Columns()
    config = folder.read_config(model_name_or_path)
    task = _task(model_name_or_path, config, train, columns, options)
    encoder = folder.read_encoder(model_name_or_path, config)
    examples = task.read(train, columns, labelled=True)
    eval_examples = task.read(evaluation, columns, labelled=True)
    with isolated():
        arguments = _arguments(training or {}, task, work)
        set_seed(arguments.seed)
        model = _model(model_name_or_path, task)
        check_finite(model, str(model_name_or_path))
        dataset = FeatureDataset(task, examples, encoder)
        mark = _fingerprint(model_name_or_path, task, arguments, examples, eval_examples)
        resume = _resume(work, mark, progress)
        try:
            trainer = _trainer(
                model=model,
                args=arguments,
                train_dataset=dataset,
                eval_dataset=eval_examples,
                data_collator=Collator(encoder, input_names(model)),
                task=task,
                encoder=encoder,
                eval_examples=eval_examples,
            )
            with progress.track("fine-tune", _steps(arguments, len(dataset))) as advance:
                trainer.add_callback(ShowProgress(advance, task.metric))
                with as_os_errors():
                    trainer.train(resume_from_checkpoint=str(resume) if resume else None)
            check_finite(model, "the trained model")
            final = _score(trainer, task, encoder, eval_examples)
        except UserError:  # a rerun would only come to the same end
            shutil.rmtree(work, ignore_errors=True)
            raise
        except OSError as error:
            hint = "Make room and run it again: it goes on from its last checkpoint."
            raise Failure(f"Writing failed: {error.strerror or error}.", where=str(work), hint=hint) from error
        _write(model, model_name_or_path, task, final, mark, Path(output_dir), overwrite)
    shutil.rmtree(work, ignore_errors=True)
    return Finetuned(Path(output_dir), task, final, trainer.state.global_step)


def _task(path: str | Path, config: Mapping[str, Any], rows: Rows, columns: Columns, options: TaskOptions) -> Task:
    """The task that was asked for with the labels of the rows, or the one that the model has already."""
    if options.task is None:
        return folder.read_task(path, config, options)
    name, problem = KINDS[options.task]
    settings: dict[str, Any] = {}
    if name != "question_answering":
        settings["labels"] = find_labels(rows, columns, name, problem)
    if problem:
        settings |= {"problem": problem, "metric": PRIMARY[problem]}
    return folder.make_task(name, settings, replace(options, task=None), config)


def _arguments(training: Mapping[str, Any], task: Task, work: Path) -> TrainingArguments:
    settings = {"per_device_eval_batch_size": 16, "logging_steps": 10, **checked(training)}
    if settings.get("bf16") and not cpu().bf16 and not torch.cuda.is_available():
        raise UserError(
            f"The '--bf16' option needs a CPU with bf16 instructions; this one ({cpu().name}) has none.",
            hint="Leave it out: without them bf16 is slower than FP32.",
        )
    by_steps = settings.get("save_steps") is not None
    settings.setdefault("save_strategy", "steps" if by_steps else "epoch")
    settings["eval_strategy"] = settings["save_strategy"]
    settings.setdefault("eval_steps", settings.get("save_steps"))
    settings.setdefault("use_cpu", not torch.cuda.is_available())
    settings.setdefault("dataloader_pin_memory", False)
    settings.setdefault("report_to", [])
    try:
        return TrainingArguments(
            output_dir=str(work),
            load_best_model_at_end=True,
            metric_for_best_model=f"eval_{task.metric}",
            greater_is_better=task.metrics[task.metric].greater_is_better,
            save_total_limit=1,
            disable_tqdm=True,
            remove_unused_columns=False,
            **settings,
        )
    except (TypeError, ValueError) as error:
        raise UserError(f"A training option cannot be taken: {error}") from None


def _steps(arguments: TrainingArguments, rows: int) -> int:
    if arguments.max_steps > 0:
        return int(arguments.max_steps)
    batches = -(-rows // arguments.per_device_train_batch_size)
    steps: int = math.ceil(-(-batches // arguments.gradient_accumulation_steps) * arguments.num_train_epochs)
    return steps


def _trainer(**parts: Any) -> TaskTrainer:
    try:
        trainer = TaskTrainer(**parts)
    except ValueError as error:  # what TrainingArguments lets pass and the trainer does not, such as fp16 on a CPU
        raise UserError(f"A training option cannot be taken: {error}") from None
    trainer.remove_callback(PrinterCallback)
    return trainer


def _model(path: str | Path, task: Task) -> PreTrainedModel:
    names: dict[str, Any] = {"num_labels": len(task.labels) or 2}  # a reader has a start and an end
    if task.labels:
        names["id2label"] = dict(enumerate(task.labels))
        names["label2id"] = {label: index for index, label in enumerate(task.labels)}
    if isinstance(task, tasks.SequenceClassification):
        names["problem_type"] = task.problem
    try:
        local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        config = AutoConfig.from_pretrained(str(path), **local, **names)
        model, report = MODELS[task.name].from_pretrained(
            str(path),
            config=config,
            ignore_mismatched_sizes=True,
            dtype=torch.float32,
            weights_only=True,
            output_loading_info=True,
            **local,
        )
    except Exception as error:  # transformers, safetensors and torch.load each raise kinds of their own
        raise UserError(f"The model cannot be loaded: {error}", where=str(path)) from error
    # A new head, and a pooler that a language model never had, are drawn anew; the encoder itself must be there.
    absent = {*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])}
    lost = sorted(x for x in absent if x.startswith(f"{model.base_model_prefix}.") and "pooler" not in x)
    if lost:
        what = f"The weights lack '{lost[0]}'" + (f" and {len(lost) - 1} more" if len(lost) > 1 else "")
        raise UserError(f"{what}, or have them in another shape.", where=str(path), hint="They do not fit config.json.")
    return model


def _work_folder(output: Path) -> Path:
    return output.absolute().parent / f".{output.absolute().name}.training"


def _fingerprint(path: str | Path, task: Task, arguments: TrainingArguments, *examples: Sequence[Any]) -> str:
    """Everything that decides the result, so that another run's checkpoints are never taken up."""
    files = sorted(p for p in Path(path).iterdir() if p.is_file())
    rows = [hashlib.sha256(repr(list(part)).encode()).hexdigest() for part in examples]
    passing = {"output_dir", "logging_dir"}
    settings = {name: repr(value) for name, value in sorted(arguments.to_dict().items()) if name not in passing}
    content = [[sha256(p) for p in files], tasks.to_json(task), settings, rows, __version__, torch.__version__]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _forget_finished(work: Path, output: Path) -> None:
    """Remove the checkpoints of a run that was killed after its result had appeared: they are of no more use."""
    try:
        notes = json.loads((output / folder.NOTES).read_text(encoding="utf-8"))
        if notes["run"] == (work / RUN).read_text(encoding="utf-8"):
            shutil.rmtree(work, ignore_errors=True)
    except (OSError, ValueError, KeyError, TypeError):
        return


def _resume(work: Path, mark: str, progress: Progress) -> Path | None:
    place = work / RUN
    if place.is_file() and place.read_text(encoding="utf-8") == mark:
        found = last_checkpoint(work)
        if found is not None:
            progress.say(f"An earlier run was interrupted; going on from {found.name.replace('-', ' ')}.")
        return found
    shutil.rmtree(work, ignore_errors=True)
    try:
        work.mkdir(parents=True)
        place.write_text(mark, encoding="utf-8")
    except OSError as error:
        raise UserError(f"The folder cannot be written: {error.strerror}.", where=str(work.parent)) from None
    return None


def _score(trainer: TaskTrainer, task: Task, encoder: Encoder, examples: Sequence[Any]) -> Score:
    from .. import engines
    from ..runtime import Predictor

    return score(Predictor(task, encoder, engines.load("torch", trainer.model)), examples)


def _write(
    model: PreTrainedModel, source: str | Path, task: Task, final: Score, mark: str, output: Path, overwrite: bool
) -> None:
    with whole_folder(output, overwrite=overwrite) as scratch:
        with as_os_errors():
            model.save_pretrained(scratch)
        AutoTokenizer.from_pretrained(str(source), local_files_only=True).save_pretrained(scratch)
        files = sorted(path.name for path in scratch.iterdir())
        notes = {
            "task": tasks.to_json(task),
            "score": {"metric": final.metric, "value": final.value, "rows": final.rows, "on": "eval rows"},
            "laconic_version": __version__,
            "run": mark,
            "files": files,
        }
        text = json.dumps(notes, ensure_ascii=False, indent=2) + "\n"
        (scratch / folder.NOTES).write_text(text, encoding="utf-8")
        for path in scratch.iterdir():
            path.chmod(path.stat().st_mode | 0o044)  # safetensors writes for the owner alone; servers run as others
