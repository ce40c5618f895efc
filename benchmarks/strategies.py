"""Several strategies in one call, `dynabert+qat+embeddings` among them: score, drop, fidelity, size, speed; the best.

    python benchmarks/strategies.py MODELS DATA [NAME …] [--work DIR] [--out benchmarks/results/strategies.md]

The dev rows are dealt in two by seed: one half chooses calibrators, steps and the best of all, the other reports and
chooses nothing. Of each strategy the candidate that the run would choose if it were alone is shown. Those are timed
after the run: one thread, length 128, × the fastest FP32 engine. --work keeps runs, so that a second call
times them on a quiet machine. To try it: --steps 4 --rows 60.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from speeds import BATCHES, FP32, times_faster
from subjects import LABEL_LOSS, SEED, Log, Subject, machine, work_folder

import tersely
from tersely import data, engines, runtime
from tersely.measure.score import Score, compare, score
from tersely.tasks import Columns

LENGTH = 128
STRATEGIES = ("ptq", "qat", "dynabert+ptq", "dynabert+qat+embeddings")
STEPS = {"mrpc": (120, 16), "tnews": (120, 32), "msra_ner": (120, 16), "cmrc2018": (80, 8)}
"""Steps and rows a step, of each training."""
SETTINGS: dict[str, Any] = {"width_mult_list": "3/4", "distill_hidden": 1.0, "learning_rate": 3e-5}


def halves(subject: Subject, rows: int | None) -> tuple[data.rows.Rows, data.rows.Rows]:
    """Dev rows that choose, and those that report."""
    dev = data.read(subject.dev)
    order = [int(i) for i in np.random.default_rng(SEED).permutation(len(dev))[:rows]]
    return dev.select(order[::2]), dev.select(order[1::2])


def run(subject: Subject, choose: data.rows.Rows, out: Path, steps: int | None) -> dict[str, Any]:
    """What `tersely.compress` writes; a run that is there already is used."""
    own, size = STEPS[subject.name]
    half = (steps or own) // 2
    if not (out / "result.json").is_file():
        begun = time.perf_counter()
        tersely.compress(
            subject.model, output_dir=out, train_file=subject.train, eval_file=choose, strategy=STRATEGIES,
            label_loss=LABEL_LOSS.get(subject.name, 0.0), max_steps=2 * half, save_steps=half,
            per_device_train_batch_size=size, seed=SEED, **SETTINGS, **subject.settings,
        )  # fmt: skip
        (out.parent / "minutes").write_text(f"{(time.perf_counter() - begun) / 60:.1f}")
    found: dict[str, Any] = json.loads((out / "result.json").read_text(encoding="utf-8"))
    return found


def of_strategy(result: dict[str, Any], strategy: str) -> dict[str, Any]:
    """The candidate of a strategy that its own rows would choose: the best score, then the most faithful."""
    made = [candidate for candidate in result["candidates"] if candidate["strategy"] == strategy]
    return max(
        made, key=lambda candidate: (candidate["name"] == result["best"], candidate["score"], candidate["same_answer"])
    )


def show(log: Log, subject: Subject, work: Path, args: argparse.Namespace) -> None:
    """A line for each strategy."""
    choose, report = halves(subject, args.rows)
    result = run(subject, choose, work / "run", args.steps)
    chosen = {strategy: of_strategy(result, strategy) for strategy in STRATEGIES}
    fp32 = subject.export(work / "fp32").folder
    installed = [name for name in engines.installed() if name != "torch"]
    found = {f"{FP32} {name}": runtime.load(fp32, name, 1) for name in installed}
    found |= {
        strategy: runtime.load(work / "run" / candidate["path"], threads=1) for strategy, candidate in chosen.items()
    }
    exact = found[f"{FP32} onnxruntime"]
    rows = exact.task.read(report, Columns(), labelled=True)
    before: Score = score(exact, rows)
    fast = times_faster(found, LENGTH, args.seconds)
    size = result["fp32"]["size"]
    log.row(subject.name, FP32, f"{100 * before.value:.2f}", "", "", "", f"{size / 1e6:.1f}", "1.00 / 1.00", "")
    for strategy, candidate in chosen.items():
        after = score(found[strategy], rows)
        seen = compare(found[strategy].task, before, after)
        if seen.drop is None:
            continue
        drop, low, high = (100 * value for value in (seen.drop.drop, seen.drop.low, seen.drop.high))
        best = "best of all" if candidate["name"] == result["best"] else ""
        share = f"{candidate['size'] / 1e6:.1f} ({100 * candidate['size'] / size:.1f} %)"
        log.row(
            subject.name, strategy, f"{100 * after.value:.2f}", f"{drop:.2f} ({low:.2f} to {high:.2f})",
            f"{100 * seen.same_answer:.2f} %", f"{seen.mean_abs_logit_change:.3f}", share, " / ".join(fast[strategy]),
            best,
        )  # fmt: skip
    log(f"{len(choose)} rows chose, {len(rows)} report; one call of {(work / 'minutes').read_text()} minutes.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("names", nargs="*", default=list(STEPS))
    parser.add_argument("--steps", type=int, help="so many for every training (those of STEPS)")
    parser.add_argument("--rows", type=int, help="so many of the dev rows (all)")
    parser.add_argument("--seconds", type=float, default=5.0, help="to time each for (5)")
    parser.add_argument("--work", type=Path, help="keep runs here, and use those that are")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    log = Log(args.out)
    log(f"python benchmarks/strategies.py MODELS DATA; {machine()}; {SETTINGS}")
    with work_folder(args.work) as scratch:
        for name in args.names:
            subject = Subject.find(name, args.models, args.data)
            log()
            log(f"{name}: {STEPS[name][0]} steps of {STEPS[name][1]} rows, label loss {LABEL_LOSS.get(name, 0.0)}")
            log()
            log.head(
                "model", "strategy", "score", "drop (95 %)", "same answer", "mean abs. Δlogit", "MB",
                f"× fastest FP32, batch {' / '.join(map(str, BATCHES))}", "",
            )  # fmt: skip
            show(log, subject, scratch / name, args)


if __name__ == "__main__":
    main()
