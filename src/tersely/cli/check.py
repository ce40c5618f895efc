"""Replay an artifact's probe on this machine; fails if its predictions moved."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from ..engines.cpu import cpu
from ..measure.check import Replay, check
from ..runtime.predictor import local_folder
from . import arguments as flags
from . import console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    flags.add_model(parser, "artifact, also hub:owner/name")
    parser.add_argument("--engine", help="onnxruntime or openvino (every one that is installed)")
    parser.add_argument("--threads", type=int, help="threads (all cores)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Replay, print; 1 if anything moved or failed."""
    model = flags.needed_model(arguments)
    done = check(local_folder(model), arguments.engine, arguments.threads, progress=console.progress())
    bad = [replay for replay in done if replay.verdict in ("moved", "failed")]
    here = cpu()
    if arguments.json:
        content = {"class": here.cpu_class, "name": here.name}
        console.emit({"ok": not bad, "cpu": content, "replays": [_as_json(replay) for replay in done]})
        return 1 if bad else 0
    print(f"{model} on CPU class {here.cpu_class} ({here.name})")
    for replay in done:
        print(f"{replay.verdict}: {replay.graph} on {replay.engine}, {replay.precision}: {said(replay)}")
    if bad:
        good = [replay.engine for replay in done if replay.verdict == "ok"]
        other = f"use --engine {good[0]}, or " if good and good[0] not in {replay.engine for replay in bad} else ""
        print(
            f"What to do: {other}install the engine's version that the artifact was made with, "
            "or make the artifact anew, INT8 with --cpu_classes all."
        )
    return 1 if bad else 0


def said(replay: Replay) -> str:
    """Tell the numbers of a replay, or why there are none."""
    if replay.change is None:
        return replay.reason
    change = replay.change
    parts = []
    if change.answers:
        allowed = f" (allowed {change.moved_limit})" if change.moved_limit else ""
        ties = f", and {change.ties} ties" if change.ties else ""
        parts.append(f"{change.moved} of {change.answers} answers moved{allowed}{ties}")
    parts.append(
        f"logits moved by up to {_share(change.max_change)} of the largest (allowed {_share(change.max_limit)}), "
        f"on average {_share(change.mean_change)} (allowed {_share(change.mean_limit)})"
    )
    if replay.precision != "fp32" and replay.same_answer_as_fp32 is not None:
        parts.append(f"{100 * replay.same_answer_as_fp32:.1f} % of the answers are FP32's")
    return "; ".join(parts)


def _as_json(replay: Replay) -> dict[str, Any]:
    content = asdict(replay)
    change = replay.change
    return {**content, "change": None if change is None else {**asdict(change), "within": change.within}}


def _share(value: float) -> str:
    """Write a share in percent, small ones too.

    >>> _share(0.1234), _share(0.00000123), _share(0.0)
    ('12 %', '0.00012 %', '0 %')
    """
    return "under 0.0001 %" if 0 < value < 1e-6 else f"{float(f'{100 * value:.2g}'):g} %"
