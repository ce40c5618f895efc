"""Rows of prompts for an extractor, made of labelled NER rows: each type of entity becomes a prompt.

DATA/msra_ner holds sentences in CoNLL's columns. This writes `train.txt`, `dev.txt` (other sentences of the same file,
to choose by) and `test.txt`, in the format of PaddleNLP's `doccano.py`:

    python examples/uie/data.py --ner_file DATA/msra_ner/train.txt --test_file DATA/msra_ner/dev.txt \\
        --prompts PER=人物 LOC=地点 ORG=组织机构 --train_sentences 3000 --dev_sentences 300 --save_dir data/uie
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tersely import UserError
from tersely.data import Rows, read
from tersely.errors import existing
from tersely.tasks.metrics.entities import entities

Row = dict[str, Any]
"""`content`: the text; `prompt`: what is asked for; `result_list`: the answers with their characters, end exclusive."""


def write_data(args: argparse.Namespace) -> None:
    """Draw sentences for training and for choosing, and write what each split holds."""
    prompts = read_prompts(args.prompts)
    rows = read(existing(args.ner_file, "file"))
    wanted = args.train_sentences + args.dev_sentences
    if wanted > len(rows):
        raise UserError(f"There are {len(rows)} sentences, {wanted} are asked for.", where=args.ner_file)
    draw = random.Random(args.seed)  # noqa: S311 - nothing secret
    order = draw.sample(range(len(rows)), wanted)
    splits = {
        "train": rows.select(order[: args.train_sentences]),
        "dev": rows.select(order[args.train_sentences :]),
    }
    if args.test_file is not None:
        splits["test"] = read(existing(args.test_file, "file"))
    made = {name: prompted(part, prompts, " " if args.blanks else "") for name, part in splits.items()}
    made["train"] = with_few_negatives(made["train"], args.negative_ratio, draw)
    args.save_dir.mkdir(parents=True, exist_ok=True)
    for name, part in made.items():
        lines = [json.dumps(row, ensure_ascii=False) for row in part]
        (args.save_dir / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        answered = sum(bool(row["result_list"]) for row in part)
        sys.stdout.write(f"{name}: {len(splits[name])} sentences, {len(part)} rows, {answered} with answers\n")


def read_prompts(words: Sequence[str]) -> dict[str, str]:
    """Prompts by type of entity, of words like PER=person."""
    found = dict(word.partition("=")[::2] for word in words)
    for kind, prompt in found.items():
        if not kind or not prompt:
            raise UserError(f"The '--prompts' option takes TYPE=prompt. Got '{kind or '='}'.")
    return found


def prompted(rows: Rows, prompts: Mapping[str, str], between: str) -> list[Row]:
    """Every sentence with every prompt, answers or none."""
    found = []
    for number, row in enumerate(rows):
        if not row.get("tags"):
            raise rows.error(number, "The sentence has no tags.", hint="Labelled rows are needed: a word, its tag.")
        words: list[str] = row["words"]
        starts = [0]
        for word in words:
            starts.append(starts[-1] + len(word) + len(between))
        answers: dict[str, list[Row]] = {kind: [] for kind in prompts}
        content = between.join(words)
        for kind, first, after in entities(row["tags"]):
            if kind not in prompts:
                what = f"There is no prompt for the type '{kind}'."
                raise rows.error(number, what, hint=f"Add {kind}=… to --prompts.")
            start, end = starts[first], starts[after] - len(between)
            answers[kind].append({"text": content[start:end], "start": start, "end": end})
        found += [{"content": content, "result_list": answers[kind], "prompt": prompts[kind]} for kind in prompts]
    return found


def with_few_negatives(rows: Sequence[Row], ratio: float, draw: random.Random) -> list[Row]:
    """All rows with answers, and at most `ratio` times as many without; shuffled."""
    answered = [row for row in rows if row["result_list"]]
    others = [row for row in rows if not row["result_list"]]
    kept = [*answered, *draw.sample(others, min(len(others), round(ratio * len(answered))))]
    draw.shuffle(kept)
    return kept


def read_rows(path: str) -> list[Row]:
    """Rows as they were written, or as `doccano.py` wrote them, checked."""
    rows = read(existing(path, "file"), format="json")
    for name in ("content", "prompt", "result_list"):
        if name not in rows.columns:
            what = f"The rows have no '{name}'. They have: {', '.join(rows.columns)}."
            raise UserError(what, where=path, hint="Make them with data.py.")
    for number, row in enumerate(rows):
        for answer in row["result_list"]:
            if not 0 <= answer["start"] < answer["end"] <= len(row["content"]):
                what = f"The answer {answer['start']} to {answer['end']} is outside of the text."
                raise rows.error(number, what, hint=f"The text has {len(row['content'])} characters.")
    return [dict(row) for row in rows]


def command_line() -> argparse.ArgumentParser:
    """The script's options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ner_file", required=True, help="labelled sentences to train on and to choose by")
    parser.add_argument("--test_file", help="labelled sentences that report")
    parser.add_argument("--prompts", nargs="+", required=True, help="TYPE=prompt for each type of entity")
    parser.add_argument("--train_sentences", type=int, default=3000, help="drawn from ner_file (3000)")
    parser.add_argument("--dev_sentences", type=int, default=300, help="others of ner_file (300)")
    parser.add_argument("--negative_ratio", type=float, default=1.0, help="training rows without answers to one with")
    parser.add_argument("--blanks", action="store_true", help="words are written with blanks between them")
    parser.add_argument("--save_dir", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=42)
    return parser


def main() -> None:
    """Write the files."""
    try:
        write_data(command_line().parse_args())
    except UserError as error:
        error.on_command_line = True
        sys.stderr.write(f"{error}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
