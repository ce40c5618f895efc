"""How the minutes and the memory of `prune` grow with layers, hidden size and rows; a base-size model among them.

    python benchmarks/prune_growth.py MODELS DATA [--out benchmarks/results/prune_growth.md]

Models of random weights with the tokenizer and the rows of TNEWS, one changed in one size at a time, at twice the speed
in FP32: fidelity means nothing, minutes and memory do. Every run begins with a cold cache in a process of its own.
Exponents are slopes through logarithms. 40 minutes on 2 cores.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from subjects import Log, machine, work_folder
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification


@dataclass(frozen=True)
class Size:
    """What one run is of."""

    layers: int = 6
    hidden: int = 384
    rows: int = 4000


MIDDLE = Size()
VARIED = {"layers": (3, 6, 12), "hidden": (192, 384, 768), "rows": (1000, 4000, 16000)}
BASE = Size(12, 768, 4000)


@dataclass(frozen=True)
class Took:
    """Minutes of `prune` (latency table, statistics, shape, repair) and of the whole command; the largest memory."""

    prune: float
    command: float
    gigabytes: float
    megabytes_of_weights: float


def run(size: Size, models: Path, data: Path, work: Path) -> Took:
    """One command in a process of its own, with a cold cache."""
    out, model = work / "out", work / "model"
    config = BertConfig.from_pretrained(
        models / "tnews", num_hidden_layers=size.layers, hidden_size=size.hidden, intermediate_size=4 * size.hidden,
        num_attention_heads=size.hidden // 64,
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(model)
    AutoTokenizer.from_pretrained(models / "tnews").save_pretrained(model)
    lines = (data / "tnews" / "train.json").read_text(encoding="utf-8").splitlines()
    files = {"train": lines[: size.rows], "eval": lines[-200:]}
    for name, rows in files.items():
        (work / f"{name}.json").write_text("\n".join(rows) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "tersely", "compress", str(model), "--strategy", "prune", "--target_speedup", "2"]
    command += [word for name in files for word in (f"--{name}_file", str(work / f"{name}.json"))]
    command += ["--target_length", "128", "--output_dir", str(out)]
    begun = time.perf_counter()
    process = subprocess.Popen(command, env={**os.environ, "XDG_CACHE_HOME": str(work / "cache")})
    _, status, used = os.wait4(process.pid, 0)
    minutes = (time.perf_counter() - begun) / 60
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):  # 1: the speed-up was missed
        raise subprocess.CalledProcessError(process.returncode, command)
    result = json.loads((out / "result.json").read_text(encoding="utf-8"))
    weights = (model / "model.safetensors").stat().st_size
    return Took(result["rungs"][0]["minutes"], minutes, used.ru_maxrss * 1024 / 1e9, weights / 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    log, found = Log(args.out), {}
    log(f"python benchmarks/prune_growth.py MODELS DATA; {machine()}; twice as fast in FP32, batch 16, 128 tokens")
    log()
    log.head("layers", "hidden", "rows", "MB", "minutes of `prune`", "of the command", "largest memory, GB")
    sizes = [replace(MIDDLE, **{name: value}) for name, values in VARIED.items() for value in values]
    for size in dict.fromkeys([*sizes, BASE]):
        with work_folder(None) as work:
            took = found[size] = run(size, args.models, args.data, work)
        log.row(
            str(size.layers), str(size.hidden), str(size.rows), f"{took.megabytes_of_weights:.0f}",
            f"{took.prune:.1f}", f"{took.command:.1f}", f"{took.gigabytes:.2f}",
        )  # fmt: skip
    log()
    log.head("grows with", "minutes of `prune`, exponent", "largest memory, exponent")
    for name, values in VARIED.items():
        alike = [found[replace(MIDDLE, **{name: value})] for value in values]
        slopes = [
            np.polyfit(np.log(values), np.log([getattr(took, what) for took in alike]), 1)[0]
            for what in ("prune", "gigabytes")
        ]
        log.row(name, *(f"{slope:.2f}" for slope in slopes))


if __name__ == "__main__":
    main()
