"""Compress a classifier of texts or of pairs: tnews, afqmc, iflytek, ocnli, cmnli, cluewsc2020, csl, mrpc, your own.

DATA holds a folder for each data set, MODELS the fine-tuned models. INT8 by calibration:

    python examples/compress_seq_cls.py --config examples/config.yml --dataset "clue tnews" --data_dir DATA \\
        --model_name_or_path MODELS/tnews --output_dir compressed/tnews --strategy ptq

Pruned and INT8, in a few steps to see it run; without `--max_steps` it trains the three epochs of config.yml:

    python examples/compress_seq_cls.py --config examples/config.yml --dataset tnews --data_dir DATA \\
        --model_name_or_path MODELS/tnews --output_dir compressed/tnews-pruned --strategy dynabert+ptq \\
        --max_steps 20 --max_eval_samples 500
"""

from __future__ import annotations

from transformers import AutoTokenizer, DataCollatorWithPadding

from scenario import encode, open_model, parse, read_examples, run
from tersely import Trainer, load_model
from tersely.cli.console import progress
from tersely.compression.result import CompressionResult


def main() -> CompressionResult:
    """Arguments, model and rows, trainer, compress."""
    model_args, data_args, compression_args = parse()
    folder = open_model(model_args, compression_args, "sequence_classification")
    train, evaluation = read_examples(data_args, folder)
    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path)
    trainer = Trainer(
        model=load_model(model_args.model_name_or_path),
        args=compression_args,
        data_collator=DataCollatorWithPadding(tokenizer),
        train_dataset=encode(folder, train),
        eval_dataset=encode(folder, evaluation),
        tokenizer=tokenizer,
    )
    return trainer.compress(progress=progress())


if __name__ == "__main__":
    run(main)
