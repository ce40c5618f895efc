"""Compress a model that answers questions with a stretch of their context: cmrc2018, or a folder in SQuAD's format.

DATA holds a folder for each data set, MODELS the fine-tuned models. Exact match chooses with `--metric em`, else F1:

    python examples/compress_qa.py --config examples/config.yml --dataset "clue cmrc2018" --data_dir DATA \\
        --model_name_or_path MODELS/cmrc2018 --output_dir compressed/cmrc2018 --strategy ptq \\
        --max_seq_length 256 --max_eval_samples 200
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import AutoTokenizer, DataCollatorWithPadding

from scenario import encode, open_model, parse, read_examples, run
from tersely import Trainer, load_model
from tersely.cli.console import progress
from tersely.compression.result import CompressionResult
from tersely.models.folder import ModelFolder


def main() -> CompressionResult:
    """Arguments, model and rows, trainer, compress."""
    model_args, data_args, compression_args = parse()
    folder = open_model(model_args, compression_args, "question_answering")
    train, evaluation = read_examples(data_args, folder)
    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path)
    trainer = Trainer(
        model=load_model(model_args.model_name_or_path),
        args=compression_args,
        data_collator=DataCollatorWithPadding(tokenizer),
        train_dataset=encode(folder, train),
        eval_dataset=windows(folder, evaluation),
        eval_examples=questions(evaluation),
        tokenizer=tokenizer,
    )
    return trainer.compress(progress=progress())


def windows(folder: ModelFolder, examples: Sequence[Any]) -> list[dict[str, Any]]:
    """Tokenized windows over contexts, with their question and the characters of each token of the context."""
    rows = []
    for feature in folder.task.features(examples, folder.encoder):
        lead, offsets = feature.alignment
        behind = len(feature) - lead - len(offsets)
        rows.append(
            {
                "input_ids": feature.input_ids.tolist(),
                "token_type_ids": feature.token_type_ids.tolist(),
                "example_id": feature.example,
                "offset_mapping": [None] * lead + offsets.tolist() + [None] * behind,
            }
        )
    return rows


def questions(examples: Sequence[Any]) -> list[dict[str, Any]]:
    """What answers are scored against: the windows' `example_id` is a question's `id`."""
    return [
        {
            "id": number,
            "context": example.context,
            "answers": [{"text": text, "answer_start": start} for text, start in example.gold],
        }
        for number, example in enumerate(examples)
    ]


if __name__ == "__main__":
    run(main)
