"""Replay an artifact's probe on this machine: do the graphs still say what they said where they were made?"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import artifact as artifacts
from .. import engines
from ..artifact import Artifact, Graph
from ..engines.engine import INPUTS, Engine
from ..errors import Failure, UserError, wrong_option
from ..progress import SILENT, Progress
from ..runtime.choose import Pair, offered_engines, pairs
from ..runtime.predictor import run
from ..tasks import Feature, Task, from_json

FILE = "probe.npz"
BATCH = 8
"""Rows a batch when the probe was recorded: dynamic INT8 takes its scales from the batch, so that it is replayed so."""

LIMITS = {"fp32": 1e-3, "bf16": 0.1}
"""Largest change of a logit, as a share of the largest logit. Four small BERTs: FP32 engines differ by 1e-6 of it from
torch, torch's own bf16 by 4e-3 to 0.05."""

INT8_MEAN, INT8_MAX = 1.0, 2.0
"""The same for INT8, in units of what quantization itself changed: mean and largest |INT8 − FP32| of the probe. Nor may
more answers move than quantization moved. No share of the logits would do: other batches and threads of one machine
move nothing, but float noise of 1e-6 before the rounding, which other kernels and CPUs bring, flips single steps and
moves logits by 4 to 57 % of the largest on four small BERTs. In these units that is 0.1 to 0.6 in the mean and up to
1.4 in the maximum, whereas sums that saturate (8-bit weights) are 1.4 to 19 in the mean."""

Logits = Sequence[NDArray[np.float32]]


@dataclass(frozen=True)
class Change:
    """Answers that moved, of how many; mean and largest |Δlogit| as shares of the largest logit; each with its limit.

    An answer whose two best logits lay close together was a `tie`, and may go either way.
    """

    answers: int
    moved: int
    moved_limit: int
    ties: int
    mean_change: float
    mean_limit: float
    max_change: float
    max_limit: float

    @property
    def within(self) -> bool:
        """Whether all of it is what another machine's rounding does."""
        few = self.moved <= self.moved_limit
        return few and self.mean_change <= self.mean_limit and self.max_change <= self.max_limit


@dataclass(frozen=True)
class Replay:
    """One graph on one engine: `verdict` is "ok", "moved", "not recorded" or "failed", for a `reason`."""

    graph: str
    engine: str
    precision: str
    verdict: str
    reason: str = ""
    change: Change | None = None
    same_answer_as_fp32: float | None = None


@dataclass(frozen=True)
class Probe:
    """The recorded inputs, without padding, and logits of each by name: `fp32`, `int8_quantized` and so on."""

    features: list[Feature]
    pad_id: int
    logits: Mapping[str, Logits]


def check(
    folder: str | Path, engine: str | None = None, threads: int | None = None, *, progress: Progress = SILENT
) -> list[Replay]:
    """Replay every graph on every engine that is installed, or on the one named; those right for this CPU class.

    Where no graph is for this class all are replayed, to see what harm that does.

    >>> check("no/such/folder")
    Traceback (most recent call last):
    tersely.errors.UserError: no/such/folder: There is no such folder. Check the path.
    """
    if threads is not None and threads < 1:
        raise wrong_option("threads", f"must be at least 1. Got {threads}.")
    opened = artifacts.read(folder)
    probe, task = read_probe(opened), from_json(opened.manifest.task)
    chosen = runnable(opened, engine)
    done = []
    with progress.track("check", len(chosen)) as advance:
        for pair in chosen:
            done.append(_on_engine(opened, pair, probe, task, threads))
            advance(1)
    if all(result.verdict == "not recorded" for result in done):
        raise Failure("There is nothing to compare with: " + done[0].reason, where=str(opened.folder))
    return done


def runnable(opened: Artifact, engine: str | None = None) -> list[Pair]:
    """Graphs × installed engines that are right on this class, best first; all of them if none is."""
    wanted = engines.installed() if engine is None else (engine,)
    found = [pair for pair in pairs(opened, engine) if pair.engine in wanted]
    if not found:
        names = ", ".join(offered_engines(opened)) or "none"
        what = f"engine '{engine}'" if engine else "an engine that is installed here"
        raise UserError(f"The artifact has no graph for {what}.", where=str(opened.folder), hint=f"It has: {names}.")
    if engine is not None:
        engines.warm(engine)  # or it says what to install
    return [pair for pair in found if pair.fits] or found


def replay(probe: Probe, task: Task, graph: Graph, runner: Engine) -> Replay:
    """Run the probe on a loaded graph and compare."""
    ran = (graph.path, runner.name, runner.precision)
    name = record_name(graph)
    if name not in probe.logits or "fp32" not in probe.logits:
        return Replay(*ran, "not recorded", f"{FILE} holds no logits of {graph.path} ('logits_{name}').")
    here = run(runner, probe.features, probe.pad_id, batch_size=BATCH)
    if not all(np.isfinite(row).all() for row in here):
        return Replay(*ran, "moved", "The logits are not numbers (NaN).")
    recorded, fp32 = probe.logits[name], probe.logits["fp32"]
    if [row.shape for row in here] != [row.shape for row in recorded]:
        return Replay(*ran, "moved", "The logits have another shape than those recorded.")
    choose = chooser(task)
    change = compare(recorded, here, fp32, runner.precision, choose)
    agreement = [choose(ours)[0] == choose(theirs)[0] for ours, theirs in zip(here, fp32, strict=True)]
    same = float(np.mean(np.concatenate(agreement))) if change.answers else None
    return Replay(*ran, "ok" if change.within else "moved", change=change, same_answer_as_fp32=same)


def record_name(graph: Graph) -> str:
    """What the probe calls the logits of a graph: INT8 ones by the graph's file.

    >>> record_name(Graph("onnx/model_onnxruntime.onnx", ("onnxruntime",), "int8"))
    'int8_onnxruntime'
    """
    return f"int8_{Path(graph.path).stem.removeprefix('model_')}" if graph.precision == "int8" else "fp32"


def compare(recorded: Logits, here: Logits, fp32: Logits, precision: str, choose: Chooser) -> Change:
    """How far logits moved from those recorded, and how far they may have."""
    largest = max(float(np.abs(row).max()) for row in recorded) or 1.0
    mean, most = _distance(recorded, here)
    tie = mean_limit = max_limit = LIMITS.get(precision, LIMITS["fp32"]) * largest
    allowed = 0
    if precision == "int8":
        noise_mean, noise_most = _distance(fp32, recorded)
        floor = LIMITS["fp32"] * largest  # where quantization hardly changed anything
        mean_limit, max_limit = INT8_MEAN * max(noise_mean, floor), INT8_MAX * max(noise_most, floor)
        tie = 2 * mean_limit  # both of two logits may have moved by that
        allowed, _ = _moved(fp32, recorded, tie, choose)
    moved, ties = _moved(recorded, here, tie, choose)
    shares = (value / largest for value in (mean, mean_limit, most, max_limit))
    return Change(sum(choose(row)[0].size for row in recorded), moved, allowed, ties, *shares)


Chooser = Callable[[NDArray[Any]], tuple[NDArray[Any], NDArray[Any]]]
"""Logits of a feature to its answers and to how far each was ahead of the next."""


def chooser(task: Task) -> Chooser:
    """What counts as an answer: a label, a label a token, a start and an end, labels above one half; no number does.

    >>> from tersely.tasks import SequenceClassification
    >>> chooser(SequenceClassification(("no", "yes")))(np.array([1.0, 3.5]))
    (array([1]), array([2.5]))
    """
    axis = task.centred_axis
    if axis is None and task.loss == "regression":
        return lambda logits: (np.empty(0), np.empty(0))
    if axis is None:
        edge = getattr(task, "threshold", 0.0)
        return lambda logits: (np.ravel(logits > edge), np.ravel(np.abs(logits - edge)))

    def likeliest(logits: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        ordered = np.sort(logits, axis=axis)
        best, second = np.take(ordered, -1, axis), np.take(ordered, max(-2, -logits.shape[axis]), axis)
        return np.ravel(np.argmax(logits, axis=axis)), np.ravel(best - second)

    return likeliest


def read_probe(opened: Artifact) -> Probe:
    """Read `probe.npz`, rows without their padding."""
    path = opened.path(FILE)
    try:
        with np.load(path, allow_pickle=False) as arrays:
            content = {name: arrays[name] for name in arrays.files}
        ids, mask, types = (content[name] for name in INPUTS)
        lengths = [1 + int(np.flatnonzero(row)[-1]) for row in mask]
        others = {name: content[name] for name in content if name not in INPUTS and not name.startswith("logits_")}
        if any((row[:length] == 0).any() for row, length in zip(mask, lengths, strict=True)):
            others["attention_mask"] = mask  # it leaves out more than padding
        features = [
            Feature(i, ids[i, :length], types[i, :length], more=_row(others, i, length, ids.shape[1]))
            for i, length in enumerate(lengths)
        ]
        logits = {
            name.removeprefix("logits_"): _unpadded(array, lengths)
            for name, array in content.items()
            if name.startswith("logits_")
        }
    except (KeyError, ValueError, IndexError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise UserError(f"The probe is damaged: {error}.", where=str(path), hint="Make the artifact anew.") from None
    if not features or len({tuple(row.shape for row in rows) for rows in logits.values()}) > 1:
        what = "The probe has no rows." if not features else "The probe's logits differ in shape."
        raise UserError(what, where=str(path), hint="Make the artifact anew.")
    return Probe(features, opened.manifest.pad_token_id, logits)


def _row(inputs: Mapping[str, NDArray[Any]], row: int, length: int, longest: int) -> dict[str, NDArray[Any]]:
    """Further inputs of a row, without the padding of those that have one entry a token."""
    return {
        name: array[row, :length] if array.ndim > 1 and array.shape[1] == longest else array[row]
        for name, array in inputs.items()
    }


def _on_engine(opened: Artifact, pair: Pair, probe: Probe, task: Task, threads: int | None) -> Replay:
    graph = pair.graph
    try:
        runner = engines.load(pair.engine, opened.path(graph.path), threads=threads, precision=graph.precision)
    except UserError as error:
        return Replay(graph.path, pair.engine, graph.precision, "failed", error.what)
    return replay(probe, task, graph, runner)


def _unpadded(logits: NDArray[np.float32], lengths: Sequence[int]) -> list[NDArray[np.float32]]:
    if len(logits) != len(lengths):
        raise ValueError(f"{len(logits)} rows of logits for {len(lengths)} of inputs")
    return [row if row.ndim == 1 else row[:length] for row, length in zip(logits, lengths, strict=True)]


def _moved(before: Logits, after: Logits, tie: float, choose: Chooser) -> tuple[int, int]:
    """Answers that changed: those that were ahead by more than a tie, and the others."""
    moved = ties = 0
    for was, now in zip(before, after, strict=True):
        choice, margin = choose(was)
        differs = choice != choose(now)[0]
        moved += int((differs & (margin > tie)).sum())
        ties += int((differs & (margin <= tie)).sum())
    return moved, ties


def _distance(before: Logits, after: Logits) -> tuple[float, float]:
    """Mean and largest |Δ| over all logits."""
    apart = np.concatenate([np.ravel(np.abs(np.float64(a) - b)) for a, b in zip(before, after, strict=True)])
    return float(apart.mean()), float(apart.max())
