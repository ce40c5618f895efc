"""Trains the widths of a learnt model from a process of its own: plainly, under torchrun, or killed again and again.

python train_widths_once.py MODEL_PARENT WORK            one run; torchrun starts several processes of it
python train_widths_once.py MODEL_PARENT WORK FILE …     a run for each file, killed when that is there, then one whole
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from slow_process import slow_down_others
from tersely.models.folder import open_folder
from tersely.prune import PruneSettings, TrainingRun, train_widths
from widths import TRAINING, examples

SETTINGS = PruneSettings(width_mult_list="1/2", depth_mult_list="1 1/2", label_loss=0.5)


def train(parent: Path, work: Path) -> None:
    """Write what came out to `made-<rank>.json` beside the work folder."""
    slow_down_others()
    model = open_folder(parent / "model")
    training = {**TRAINING, "save_steps": 3, "per_device_train_batch_size": int(os.environ.get("BATCH", "8"))}
    rows, dev = examples(model, "train")[:104], examples(model, "dev")
    own, others = rows[::2], [replace(row, gold=None) for row in rows[1::2]]  # batches mix both kinds
    run = TrainingRun(model, own, dev, work, training, seed=7, unlabelled=others)
    made = train_widths(run, SETTINGS)
    summary = [[width.name, str(width.folder.relative_to(work)), width.step, width.score.value] for width in made]
    rank = os.environ.get("RANK", "0")
    (work.parent / f"made-{rank}.json").write_text(json.dumps(summary), encoding="utf-8")


def main() -> None:
    parent, work = Path(sys.argv[1]), Path(sys.argv[2])
    files = sys.argv[3:]
    if not files:
        train(parent, work)
        return
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # one thread everywhere: nothing is lost in a fork
    for file in [*files, None]:
        print(json.dumps(forked(parent, work, file)), flush=True)


def forked(parent: Path, work: Path, file: str | None) -> tuple[int, str]:
    """Exit code (-9 if killed) and the checkpoints that lie there."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            train(parent, work)
            code = 0
        finally:
            os._exit(code)
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            break
        if file is not None and (work / file).exists():
            os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
            break
        time.sleep(0.002)
    left = sorted(path.name for path in work.glob("checkpoint-*")) if work.is_dir() else []
    return os.waitstatus_to_exitcode(status), " ".join(left)


if __name__ == "__main__":
    main()
