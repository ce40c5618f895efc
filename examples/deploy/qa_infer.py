"""Answer questions from their contexts with an artifact, without torch. Positions are characters, both ends included.

python examples/deploy/qa_infer.py --model_dir smaller/best "Where is it?" "The company moved to Lyon in 1998."
"""

from __future__ import annotations

from predictor import answers, load, parse, run
from tersely import UserError

SAMPLES = [
    "Where did the company move?",
    "In 1998 the company moved its office from Lyon to a small town near Geneva.",
    "张伟去了哪里?",
    "昨天下午,张伟从北京飞往上海参加公司的年度会议。",
]


def main() -> None:
    """Answer the inputs of the command line, or the samples."""
    args = parse(__doc__, "a question, its context, the next question …")
    predictor = load(args, "question_answering")
    texts = args.inputs or SAMPLES
    if len(texts) % 2:
        raise UserError(f"The question '{texts[-1]}' has no context.", hint="Give each question with its context.")
    pairs = list(zip(texts[::2], texts[1::2], strict=True))
    for _, _, (question, _), answer in answers(predictor, pairs):
        print(f"question: {question}")
        place = f"   pos: [{answer.start}, {answer.end - 1}]" if answer.text else ""
        print(f"answer: {answer.text}{place}   score: {answer.score:.4f}")
        print("-----------------------------")


if __name__ == "__main__":
    run(main)
