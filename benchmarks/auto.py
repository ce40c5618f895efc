"""`--strategy auto --max_drop 0.01 --max_minutes 20`: what it chooses, and whether the drop holds on unseen rows.

    python benchmarks/auto.py MODELS DATA [NAME …] [--demo DIR] [--work DIR] [--out benchmarks/results/auto.md]

A third of the dev rows by seed goes into the command, the rest reports and chooses nothing. Beside what was chosen
stands the fastest of the run that is neither pruned nor trained. --demo: a folder that `tersely demo` wrote, for its
film reviews. --work keeps runs. Batch 16, one thread, 128 tokens (CMRC 256).
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from speed_to_order import NAMES, length_of, split
from subjects import SEED, Log, Subject, machine, work_folder

import tersely
from tersely import runtime
from tersely.measure.score import compare, score
from tersely.tasks import Columns

REVIEWS = "film reviews"


def show(log: Log, subject: Subject, work: Path, args: argparse.Namespace) -> bool:
    """Compress, or use a run that is there, and show its line; whether the drop holds on rows that it did not see."""
    choose, report = split(subject, args.rows)
    out = work / "auto"
    if not (out / "result.json").is_file():
        begun = time.perf_counter()
        tersely.compress(
            subject.model, output_dir=out, train_file=subject.train, eval_file=choose, strategy="auto", seed=SEED,
            max_drop=args.max_drop, max_minutes=args.max_minutes, target_length=length_of(subject.name), progress=True,
            **subject.settings,
        )  # fmt: skip
        (out / "minutes").write_text(f"{(time.perf_counter() - begun) / 60:.1f}")
    result = json.loads((out / "result.json").read_text(encoding="utf-8"))
    best = next(found for found in result["candidates"] if found["name"] == result["best"])
    plain = [found for found in result["candidates"] if found["model"] is None]
    fastest = max(found["speedup"]["ratio"] for found in plain)
    exact = runtime.load(subject.export(work / "fp32").folder, "onnxruntime", 1)
    rows = exact.task.read(report, Columns(), labelled=True)
    made = score(runtime.load(out / best["path"], threads=1), rows)
    found = compare(exact.task, score(exact, rows), made)
    if found.drop is None:
        raise ValueError("A score is needed.")
    log.row(
        subject.name, best["name"], f"{best['speedup']['ratio']:.2f}", f"{fastest:.2f}",
        f"{100 * best['drop']:.2f} on {best['rows']} rows", f"{100 * found.drop.drop:.2f} on {len(rows)} rows",
        f"{100 * found.drop.low:.2f} to {100 * found.drop.high:.2f}", f"{100 * found.same_answer:.1f} %",
        f"{best['size'] / 1e6:.1f}", (out / "minutes").read_text(),
    )  # fmt: skip
    return found.drop.drop <= args.max_drop


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("names", nargs="*", default=list(NAMES))
    parser.add_argument("--demo", type=Path, help="a folder of `tersely demo`")
    parser.add_argument("--max_drop", type=float, default=0.01)
    parser.add_argument("--max_minutes", type=float, default=20.0)
    parser.add_argument("--rows", type=int, help="so many of the dev rows (all)")
    parser.add_argument("--work", type=Path, help="keep runs here, and use those that are")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    log = Log(args.out)
    log(f"python benchmarks/auto.py MODELS DATA; {machine()}; --max_drop {args.max_drop:g} --max_minutes "
        f"{args.max_minutes:g}; batch 16, one thread, 128 tokens (CMRC 256)")  # fmt: skip
    log()
    log.head(
        "model", "chosen", "×", "× of the fastest unpruned", "drop, judged by the run", "drop on unseen rows", "95 %",
        "same answer", "MB", "minutes",
    )  # fmt: skip
    with work_folder(args.work) as scratch:
        subjects = [Subject.find(name, args.models, args.data) for name in args.names]
        if args.demo:
            model, train, dev = (args.demo / name for name in ("model", "train.tsv", "dev.tsv"))
            subjects.append(Subject(REVIEWS, model, train, dev, ()))
        held = [show(log, subject, scratch / subject.name, args) for subject in subjects]
    log()
    log(f"The drop holds on unseen rows in {sum(held)} of {len(held)} runs.")


if __name__ == "__main__":
    main()
