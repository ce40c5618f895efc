"""Fine-tune, score and compress a UIE-style extractor, on rows of prompts that `data.py` makes.

ENCODER is a folder of transformers, such as a Chinese BERT or what `tersely convert` makes of an ERNIE:

    python examples/uie/finetune.py --model_name_or_path ENCODER --output_dir models/uie --do_train --do_eval \\
        --train_path data/uie/train.txt --dev_path data/uie/dev.txt --max_seq_length 128 \\
        --label_names start_positions end_positions --learning_rate 1e-4 --num_train_epochs 2

    python examples/uie/finetune.py --model_name_or_path models/uie --output_dir compressed/uie --do_compress \\
        --train_path data/uie/train.txt --dev_path data/uie/dev.txt --max_seq_length 128 \\
        --label_names start_positions end_positions --strategy qat --learning_rate 1e-5 --num_train_epochs 1
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

import torch

from data import read_rows
from evaluate import SpanEvaluator
from features import LABELS, Padded, encode
from model import criterion, open_uie
from tersely import CompressionArguments, PdArgumentParser, Trainer, UserError
from tersely.cli.compress_table import show
from tersely.cli.console import progress
from tersely.errors import Failure


@dataclass
class ModelArguments:
    """What is trained or compressed."""

    model_name_or_path: str = field(metadata={"help": "an encoder's folder, or one that --do_train wrote"})


@dataclass
class DataArguments:
    """What it is trained, calibrated and scored on."""

    train_path: str = field(metadata={"help": "rows to train on, of data.py"})
    dev_path: str = field(metadata={"help": "rows that score and choose"})


def command_line() -> PdArgumentParser:
    """The script's options."""
    return PdArgumentParser((ModelArguments, DataArguments, CompressionArguments))


def custom_evaluate(self: Trainer, model: Any, data_loader: Any) -> float:
    """Span F1; the model may be torch's or an INT8 graph in its engine."""
    metric = SpanEvaluator()
    model.eval()
    with torch.no_grad():
        for batch in data_loader:
            start, end = model(batch["input_ids"], batch["token_type_ids"])
            metric.update(start, end, *(batch[name] for name in LABELS))
    return metric.accumulate()[-1]


def compute_metrics(prediction: Any) -> dict[str, float]:
    """The same for `train()` and `evaluate()`, which gather chances and labels first."""
    metric = SpanEvaluator()
    metric.update(*prediction.predictions, *prediction.label_ids)
    return dict(zip(("precision", "recall", "f1"), metric.accumulate(), strict=True))


def main() -> None:
    """Arguments, model and rows, trainer; then what was asked for."""
    model_args, data_args, args = command_line().parse_args_into_dataclasses()
    if not (args.do_train or args.do_eval or args.do_compress):
        raise UserError("There is nothing to do.", hint="Say --do_train, --do_eval, --do_compress, or several.")
    if list(args.label_names or ()) != list(LABELS):
        raise UserError(f"The rows have two labels: --label_names {' '.join(LABELS)}.")
    model, tokenizer = open_uie(model_args.model_name_or_path)
    rows = [
        encode(read_rows(path), tokenizer.backend_tokenizer, args.max_seq_length or 128)
        for path in (data_args.train_path, data_args.dev_path)
    ]
    trainer = Trainer(
        model=model,
        args=args,
        data_collator=Padded(tokenizer.pad_token_id),
        train_dataset=rows[0],
        eval_dataset=rows[1],
        tokenizer=tokenizer,
        criterion=criterion,
        compute_metrics=compute_metrics,
    )
    if args.do_train:
        trainer.train()
        trainer.save_model()
    if args.do_eval:
        trainer.log_metrics("eval", trainer.evaluate())
    if args.do_compress:
        result = trainer.compress(custom_evaluate=custom_evaluate, progress=progress())
        show(result, result.output_dir)
        result.expect_met()


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        error.on_command_line = True
        sys.stderr.write(f"{error}\n")
        sys.exit(1 if isinstance(error, Failure) else 2)
