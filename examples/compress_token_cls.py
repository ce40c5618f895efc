"""Compress a model that tags words, such as one for named entities: msra_ner, or a folder of your own.

DATA holds a folder for each data set, MODELS the fine-tuned models:

    python examples/compress_token_cls.py --config examples/config.yml --dataset msra_ner --data_dir DATA \\
        --model_name_or_path MODELS/msra_ner --output_dir compressed/msra_ner --strategy ptq

Sentences that are longer than `--max_seq_length` are cut into windows, each a row of its own: an entity that stands at
a cut counts as two.
"""

from __future__ import annotations

from transformers import AutoTokenizer, DataCollatorForTokenClassification

from scenario import encode, open_model, parse, read_examples, run
from tersely import Trainer, load_model
from tersely.cli.console import progress
from tersely.compression.result import CompressionResult


def main() -> CompressionResult:
    """Arguments, model and rows, trainer, compress."""
    model_args, data_args, compression_args = parse()
    folder = open_model(model_args, compression_args, "token_classification")
    train, evaluation = read_examples(data_args, folder)
    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path)
    trainer = Trainer(
        model=load_model(model_args.model_name_or_path),
        args=compression_args,
        data_collator=DataCollatorForTokenClassification(tokenizer),
        train_dataset=encode(folder, train),
        eval_dataset=encode(folder, evaluation),
        tokenizer=tokenizer,
    )
    return trainer.compress(progress=progress())


if __name__ == "__main__":
    run(main)
