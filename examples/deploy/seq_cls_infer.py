"""Classify texts or pairs of texts with an artifact, without torch.

python examples/deploy/seq_cls_infer.py --model_dir smaller/best --batch_size 2 "A quiet, moving film."
"""

from __future__ import annotations

from predictor import answers, load, parse, run

SAMPLES = ["未来自主研制的飞机将飞上蓝天", "The shares rose 12 percent on Friday, and analysts were not surprised."]


def main() -> None:
    """Answer the inputs of the command line, or the samples."""
    args = parse(__doc__, "texts; a pair has a tab between its texts")
    predictor = load(args, "sequence_classification")
    texts = [tuple(text.split("\t", 1)) if "\t" in text else text for text in args.inputs or SAMPLES]
    for batch, example, value, answer in answers(predictor, texts):
        first, second = value if isinstance(value, tuple) else (value, None)
        said = f"sentence1:{first}, sentence2:{second}" if second is not None else f"sentence1:{first}"
        score = "" if answer.score is None else f", similarity:{answer.score:.4f}"
        print(f"Batch id:{batch}, example id:{example}, {said}, label:{_label(answer.label)}{score}")


def _label(label: object) -> str:
    """One label, several, or a number."""
    return " ".join(label) if isinstance(label, tuple) else f"{label:.4f}" if isinstance(label, float) else str(label)


if __name__ == "__main__":
    run(main)
