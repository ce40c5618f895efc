"""Bulk prediction: rows a second with one worker, with two, and with two through Ray.

    python benchmarks/bulk.py MODELS DATA [--name mrpc] [--work DIR] [--out benchmarks/results/bulk.md]

`tersely predict FILE --output OUT` from start to end as a user waits for it, one thread a worker, the INT8 model on
real rows (those of train and dev, again from the beginning until there are enough). What a start costs is a run over
one row. Runs alternate; the answers of all are compared byte by byte. Two cores, `tersely[ray]`; about 20 minutes on
a quiet machine. To try it: --rows 64 --repeats 1.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import cycle, islice
from pathlib import Path
from statistics import median

from scores import tersely
from subjects import Log, Subject, machine, work_folder

from tersely import data

WAYS = {
    "one process": ["--threads", "1"],
    "2 workers": ["--threads", "1", "--workers", "2"],
    "Ray, 2 workers here": ["--threads", "1", "--workers", "2", "--ray", "local"],
}


def write_rows(subject: Subject, count: int, file: Path) -> Path:
    """As many real rows as asked for, without their labels."""
    fields = ("text", "text_pair", "words", "question", "context")
    found = [record for path in (subject.train, subject.dev) for record in data.read(path)]
    rows = [{name: record[name] for name in fields if name in record} for record in islice(cycle(found), count)]
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return file


def seconds(artifact: Path, file: Path, output: Path, words: list[str], flags: tuple[str, ...]) -> float:
    """How long a user waits."""
    started = time.monotonic()
    tersely("predict", str(artifact), str(file), "--output", str(output), "--overwrite", *words, *flags)
    return time.monotonic() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--name", default="mrpc")
    parser.add_argument("--rows", type=int, default=16_384)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--work", type=Path, help="keep the compressed model here, or find it here")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    log = Log(args.out)
    log(f"python benchmarks/bulk.py MODELS DATA --name {args.name} --rows {args.rows} --repeats {args.repeats}")
    log()
    with work_folder(args.work) as scratch:
        subject = Subject.find(args.name, args.models, args.data)
        subject.compress(scratch / "int8", "--strategy", "ptq", "--algo_list", "mse")
        artifact = scratch / "int8" / "best"
        many = write_rows(subject, args.rows, scratch / "many.jsonl")
        single = write_rows(subject, 1, scratch / "one.jsonl")
        took: dict[str, list[float]] = {name: [] for name in WAYS}
        started: dict[str, list[float]] = {name: [] for name in WAYS}
        written = {}
        for _ in range(args.repeats):
            for name, words in WAYS.items():
                output = scratch / "answers.jsonl"
                started[name].append(seconds(artifact, single, output, words, subject.flags))
                took[name].append(seconds(artifact, many, output, words, subject.flags))
                written[name] = output.read_bytes()
    log(f"{machine()}; {args.name} INT8, {args.rows} real rows, batch 16, one thread a worker.")
    log()
    log.head("way", "rows a second", "× one process", "range of ×", "start, s", "rows a second without the start", "×")
    first, *_ = WAYS
    for name in WAYS:
        ratios = [base / own for base, own in zip(took[first], took[name], strict=True)]
        rate = args.rows / median(took[name])
        base, own = (median(took[way]) - median(started[way]) for way in (first, name))
        log.row(
            name, f"{rate:.0f}", f"{median(ratios):.2f}", f"{min(ratios):.2f} to {max(ratios):.2f}",
            f"{median(started[name]):.1f}", f"{args.rows / own:.0f}", f"{base / own:.2f}",
        )  # fmt: skip
    log()
    same = all(content == written[first] for content in written.values())
    log("All wrote the same bytes." if same else "The bytes DIFFER.")


if __name__ == "__main__":
    main()
