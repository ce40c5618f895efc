"""Scores of four fine-tuned models on every engine, and of their artifacts through the runtime.

    python benchmarks/scores.py MODELS DATA [--out benchmarks/results/scores.md] [NAME …]

MODELS holds the folders mrpc, tnews, msra_ner, cmrc2018; DATA their data sets. Takes about 25 minutes on 2 cores.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

SETTINGS = {
    "mrpc": ("mrpc/dev.tsv", []),
    "tnews": ("tnews/dev.json", []),
    "msra_ner": ("msra_ner/dev.txt", ["--max_seq_length", "512"]),
    "cmrc2018": (
        "cmrc2018/dev_500.json",
        ["--max_seq_length", "256", "--doc_stride", "128", "--max_answer_length", "50", "--n_best_size", "20"],
    ),
}
SHOWN = {"mrpc": ("accuracy", "f1"), "tnews": ("accuracy",), "msra_ner": ("f1",), "cmrc2018": ("f1", "em")}


def tersely(*words: str) -> dict:
    done = subprocess.run([sys.executable, "-m", "tersely", *words, "--json"], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def line(name: str, what: str, result: dict) -> str:
    scores = ", ".join(f"{metric} {100 * result['metrics'][metric]:.2f}" for metric in SHOWN[name])
    low, high = result["interval"]
    first = f"{100 * low:.2f} to {100 * high:.2f}"
    return f"| {name} | {what} | {scores} | {first} | {result['rows']} | {result['cpu']['class']} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("names", nargs="*", default=list(SETTINGS))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    lines = ["| model | engine | score | 95 % interval of the first | rows | CPU class |", "|---|---|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        for name in args.names:
            file, options = SETTINGS[name]
            model, data = str(args.models / name), str(args.data / file)
            artifact = f"{scratch}/{name}"
            tersely("export", model, "--output_dir", artifact, *options)
            for path, engine, what in (
                (model, "torch", "torch, model folder"),
                (artifact, "onnxruntime", "onnxruntime, artifact"),
                (artifact, "openvino", "openvino, artifact"),
            ):
                words = ["evaluate", path, "--eval_file", data, "--engine", engine]
                lines.append(line(name, what, tersely(*words, *(options if engine == "torch" else []))))
                print(lines[-1], flush=True)
    if args.out:
        args.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
