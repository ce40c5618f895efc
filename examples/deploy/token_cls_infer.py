"""Find entities in texts with an artifact, without torch. Positions are characters, both ends included.

python examples/deploy/token_cls_infer.py --model_dir smaller/best "北京的涮肉很好吃"
"""

from __future__ import annotations

from predictor import answers, load, parse, run

SAMPLES = ["北京的涮肉,重庆的火锅,成都的小吃都很有名。", "Mr. Okafor founded the school with his sister in Lagos."]


def main() -> None:
    """Answer the inputs of the command line, or the samples."""
    args = parse(__doc__, "texts")
    predictor = load(args, "token_classification")
    for _, _, text, answer in answers(predictor, args.inputs or SAMPLES):
        print(f"input data: {text}")
        print("The model detects all entities:")
        for entity in answer.entities:
            print(f"entity: {entity.text}   label: {entity.label}   pos: [{entity.start}, {entity.end - 1}]")
        print("-----------------------------")


if __name__ == "__main__":
    run(main)
