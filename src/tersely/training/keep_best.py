"""The best of each network so far, on disk: a kill at any moment loses none that a checkpoint knows of."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..measure.score import Answers, Score
from ..tasks import Task

RECORD = "best.json"
"""File of a checkpoint: what was best when it was written."""


@dataclass
class KeepBest:
    """Keeps `work/step-<n>/<name>/` for each name: the model that scored best, of equal ones the latest.

    Where it is told how far each one's logits have moved, of equal ones the one that has moved least.

    What a new best replaces stays until the next checkpoint is whole: a run that goes on from an older one finds
    what that one knew of.
    """

    work: Path
    task: Task
    write: Callable[[Any, Path], object]
    """Writes a model as a folder, whole or not at all; one that is there is replaced."""
    writes: bool = True
    """False on all but one of several processes."""
    best: dict[str, tuple[int, Score]] = field(default_factory=dict)
    moved: dict[str, float] = field(default_factory=dict)
    """How far the logits of each best one are from its teacher's."""

    def offer(self, name: str, model: Any, step: int, score: Score, moved: float | None = None) -> bool:
        """Keep a model if none before it was better; it is written at once."""
        if name in self.best:
            other = self.best[name][1]
            further = moved is not None and name in self.moved and moved > self.moved[name]
            if self._worse(score, other) or (further and not self._worse(other, score)):
                return False
        if self.writes:
            self.write(model, self.folder(name, step))
        self.best[name] = step, score.without_answers()
        if moved is not None:
            self.moved[name] = moved
        return True

    def folder(self, name: str, step: int | None = None) -> Path:
        """Where the best of a name lies."""
        return self.work / f"step-{self.best[name][0] if step is None else step}" / name

    def save(self, place: Path) -> None:
        """Write the record of a checkpoint."""
        content = {
            name: {"step": step, "score": score_to_json(score), "moved": self.moved.get(name)}
            for name, (step, score) in self.best.items()
        }
        place.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def load(self, place: Path) -> None:
        """Go on from the record of a checkpoint."""
        content = json.loads(place.read_text(encoding="utf-8"))
        self.best = {name: (one["step"], score_from_json(one["score"])) for name, one in content.items()}
        self.moved = {name: one["moved"] for name, one in content.items() if one["moved"] is not None}

    def forget_others(self) -> None:
        """Remove what a newer best has replaced; to be called when the record is safe."""
        if not self.writes:
            return
        kept = {self.folder(name) for name in self.best}
        for step in self.work.glob("step-*"):
            for path in step.iterdir():
                if path not in kept:
                    shutil.rmtree(path, ignore_errors=True)
            if not any(step.iterdir()):
                step.rmdir()

    def _worse(self, score: Score, other: Score) -> bool:
        if score.value != score.value:  # NaN: a correlation of answers that are all the same
            return True
        if other.value != other.value:
            return False
        greater = self.task.metrics[self.task.metric].greater_is_better
        return score.value < other.value if greater else score.value > other.value


def score_to_json(score: Score) -> dict[str, Any]:
    """All but answers and logits."""
    return {
        "metric": score.metric,
        "value": score.value,
        "interval": score.interval,
        "metrics": score.metrics,
        "rows": score.rows,
        "seconds": score.seconds,
    }


def score_from_json(content: dict[str, Any]) -> Score:
    """What `score_to_json` gave; without answers and logits."""
    interval: Sequence[float] | None = content["interval"]
    if interval is not None and len(interval) != 2:
        raise UserError(f"An interval has two ends. Got {interval}.")
    ends = None if interval is None else (float(interval[0]), float(interval[1]))
    answers = Answers(content["rows"], content["seconds"], [], [])
    return Score(content["metric"], content["value"], ends, content["metrics"], answers)
