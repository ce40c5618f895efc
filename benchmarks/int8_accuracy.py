"""What INT8 costs in accuracy: the defaults on four models, NNCF beside them, and every setting of ptq on MRPC.

    python benchmarks/int8_accuracy.py MODELS DATA [NAME …] [--peers DIR] [--all] [--out benchmarks/results/….md]

Calibration rows are training rows drawn by seed 42; dev rows score. Each line is what `tersely compress --strategy ptq`
with the line's options gives. DIR/NAME holds what benchmarks/peers.py wrote. Takes about 30 minutes on 2 cores.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from peers import PEERS
from scores import SETTINGS, SHOWN
from subjects import Log, Subject, machine

from tersely import data, engines
from tersely.compression.candidate import Candidate, write_candidate
from tersely.compression.divide import Data, divide_rows
from tersely.compression.make_candidates import equal, make
from tersely.compression.request import Request
from tersely.compression.story import compress
from tersely.engines.cpu import cpu
from tersely.measure.score import Comparison, Score
from tersely.measure.score import compare as compare_scores
from tersely.measure.score import score as score_rows
from tersely.options.compress import CompressOptions
from tersely.quantize.calibrators import CALIBRATORS
from tersely.runtime import Predictor

DEFAULTS, NNCF = "defaults", PEERS["nncf"].name
VARIANTS: tuple[dict[str, Any], ...] = (
    {"algo_list": tuple(CALIBRATORS)},
    {"round_type": "adaround"},
    {"bias_correction": True},
    *({"smooth": strength} for strength in ("off", "auto", 0.5, 0.7)),
    *({"quantize_attention": choice} for choice in ("on", "off")),
    *({"calibration_rows": rows} for rows in (4, 16, 64, 300)),
)
"""Options by which one line differs from the defaults; `--algo_list mse` where it names no other."""


@dataclass(frozen=True)
class Line:
    """What was measured of one system."""

    scored: Score
    compared: Comparison
    engine: str

    @property
    def drop(self) -> float:
        return self.compared.drop.drop if self.compared.drop else 0.0


class Bench:
    """One model: compressed with the defaults, and whatever else is scored on the same rows."""

    def __init__(self, subject: Subject, rows: int | None, scratch: Path, engine: str | None) -> None:
        self._train, self._scratch, self._engine = data.read(subject.train), scratch / subject.name, engine
        dev = data.read(subject.dev)
        chosen = Data(self._train, dev if rows is None else dev.select(range(min(rows, len(dev)))))
        options = CompressOptions(strategy=("ptq",))
        place = self._scratch / "out"
        self.result = compress(Request(subject.model, place, chosen, options, task_options=subject.task_options()))
        self._source, self._examples = self.result.source, self.result.rows.scoring
        self._reference = self.result.fp32.score
        self._known: list[tuple[Candidate, Line]] = []

    @property
    def reference(self) -> Score:
        """The FP32 model's."""
        if self._reference is None:
            raise ValueError("The rows have no labels.")
        return self._reference

    def defaults(self) -> Line:
        """What `tersely compress --strategy ptq` chose."""
        best = self.result.best
        if self._engine not in (None, best.engine):
            return self._measure(best.candidate)
        if best.score is None:
            raise ValueError("The rows have no labels.")
        return Line(best.score, best.comparison, best.engine)

    def nncf(self, path: Path) -> Line:
        """A graph that NNCF made."""
        return self._score("openvino", path)

    def variant(self, changed: dict[str, Any]) -> Iterator[tuple[str, Line]]:
        """Score every candidate that these options give, by the options that give it alone."""
        options = CompressOptions(**{"strategy": ("ptq",), "algo_list": ("mse",), **changed})
        rows = divide_rows(Data(self._train), self._source.task, options, options.plans())
        samples = rows.encode(self._source.task, self._source.encoder).samples
        made, same = make(replace(self._source, plans=options.plans()), options, samples)
        by_name = {candidate.name: candidate for candidate in made}
        other = {name: value for name, value in changed.items() if name != "algo_list"}
        flags = "".join(f" --{name} {str(value).lower()}" for name, value in other.items())
        assert samples is not None  # ptq calibrates
        (plan,), (rows_name,) = options.plans(), samples.sets
        for algo in options.algo_list:
            name = plan.candidate(algo, rows_name)
            yield f"--algo_list {algo}{flags}", self._line(by_name[same.get(name, name)])

    def _line(self, made: Candidate) -> Line:
        for known, line in self._known:  # `--smooth auto` is the default, and so on
            if equal(known.quant_map, made.quant_map):
                return line
        with tempfile.TemporaryDirectory(dir=self._scratch) as folder:
            wanted = [name for name in engines.installed() if name != "torch"]
            line = self._measure(write_candidate(made, Path(folder), wanted))
        self._known.append((made, line))
        return line

    def _measure(self, candidate: Candidate) -> Line:
        pair = next(pair for pair in candidate.pairs() if self._engine in (None, pair.engine))
        folder = candidate.folder
        if not folder.exists():  # published under its name
            folder = self.result.output_dir / "candidates" / candidate.name
        return self._score(pair.engine, folder / pair.graph.path)

    def _score(self, engine: str, path: Path) -> Line:
        runner = engines.load(engine, path, precision="int8")
        predictor = Predictor(self._source.task, self._source.encoder, runner)
        scored = score_rows(predictor, self._examples, resamples=0)
        return Line(scored, compare_scores(predictor.task, self.reference, scored), engine)


def show(log: Log, name: str, what: str, scored: Score, line: Line | None) -> None:
    """One row of the table; without a line the FP32 model's."""
    metrics = ", ".join(f"{metric} {100 * scored.metrics[metric]:.2f}" for metric in SHOWN[name])
    drop = same = change = ""
    if line is not None and line.compared.drop is not None:
        found = line.compared.drop
        drop = f"{100 * found.drop:.2f} ({100 * found.low:.2f} to {100 * found.high:.2f})"
        same = f"{100 * line.compared.same_answer:.2f} %"
        moved = line.compared.mean_abs_logit_change
        change = "" if moved is None else f"{moved:.4f}"
    engine = "onnxruntime" if line is None else line.engine
    log.row(name, what, metrics, drop, same, change, str(scored.rows), engine, cpu().cpu_class)


def show_pooled(log: Log, what: str, lines: Sequence[Line]) -> None:
    """The drop over all rows: each model's drop of its primary metric, weighted by its rows."""
    rows = sum(line.scored.rows for line in lines)
    pooled = sum(line.scored.rows * line.drop for line in lines) / rows
    log(
        f"{what}: drop pooled over {rows} rows of {len(lines)} models: {100 * pooled:.3f} points "
        "(mean of the models' drops of their first metric, each weighted by its number of dev rows)."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("names", nargs="*", default=list(SETTINGS), help="models (all four)")
    parser.add_argument("--peers", type=Path, help="holds NAME/nncf.xml")
    parser.add_argument("--rows", type=int, help="score the first so many dev rows alone (all)")
    parser.add_argument("--engine", help="score on this one, not on the one that the runtime chooses")
    parser.add_argument("--all", action="store_true", help="every setting on every model, not on mrpc alone")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    log = Log(args.out)
    log(f"python benchmarks/int8_accuracy.py MODELS DATA; {machine()}")
    log("Drop of the first metric in points with its paired 95 % interval; same answer and mean |Δlogit| against FP32.")
    log()
    log.head("model", "setting", "score", "drop", "same answer", "mean abs. Δlogit", "rows", "engine", "CPU class")
    pooled: dict[str, list[Line]] = {DEFAULTS: [], NNCF: []}
    for name in args.names:
        with tempfile.TemporaryDirectory() as scratch:
            subject = Subject.find(name, args.models, args.data)
            bench = Bench(subject, args.rows, Path(scratch), args.engine)
            show(log, name, "FP32", bench.reference, None)
            line = bench.defaults()
            pooled[DEFAULTS].append(line)
            show(log, name, f"{DEFAULTS} (chose {bench.result.best.name})", line.scored, line)
            graph = (args.peers or Path()) / name / PEERS["nncf"].file
            if args.peers and graph.is_file():
                line = bench.nncf(graph)
                pooled[NNCF].append(line)
                show(log, name, NNCF, line.scored, line)
            for changed in VARIANTS if name == "mrpc" or args.all else ():
                for what, line in bench.variant(changed):
                    show(log, name, what, line.scored, line)
    log()
    for what, lines in pooled.items():
        if lines:
            show_pooled(log, what, lines)


if __name__ == "__main__":
    main()
