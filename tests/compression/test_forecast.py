"""What a run says of its time: guesses that learn from what was done, and the clock of the run."""

from __future__ import annotations

import time

import pytest

from tersely.compression.forecast import Forecast, RunClock
from tersely.progress import SILENT
from tersely.strategy import parse_all

PLAIN, PRUNED = parse_all(["ptq+embeddings"]), parse_all(["prune+ptq+embeddings"])
DISTILLED = parse_all(["prune+dynabert+ptq+embeddings"])


def forecast(**fields: object) -> Forecast:
    return Forecast(time.monotonic(), 8.0, 20.0, **fields)  # type: ignore[arg-type]


def test_tables_and_scores_count_once_and_each_speed_up_by_itself() -> None:
    first = forecast()
    single, three = first.rung(PRUNED), first.rung(PRUNED, 3)
    assert first.rung(PLAIN) < single < three < 3 * single
    each = (three - single) / 2
    first.note(PRUNED, single)
    assert first.rung(PRUNED) == single  # what it took, not what was guessed
    timed = forecast(has_tables=True)
    assert each < timed.rung(PRUNED) < single
    timed.note(DISTILLED, 5.0)
    assert timed.rung(PRUNED) == pytest.approx(each)  # what was distilled was scored before


def test_what_is_left_is_what_is_allowed_less_what_was_spent_and_the_end() -> None:
    assert forecast().left(3) is None
    found = forecast(allowed=10.0, judged=True)
    assert found.left(3) == pytest.approx(10 - found.ending(3), abs=0.01)
    assert found.ending(6) > found.ending(3) > forecast(allowed=10.0).ending(3)


def test_the_clock_stands_before_every_title() -> None:
    class Titles:
        def __init__(self) -> None:
            self.seen: list[str] = []

        def track(self, title: str, total: int) -> object:
            self.seen.append(title)
            return SILENT.track(title, total)

        def say(self, line: str) -> None:
            self.seen.append(line)

    titles = Titles()
    clock = RunClock(titles, time.monotonic() - 90)  # type: ignore[arg-type]
    with clock.track("export", 3) as advance:
        advance(1)
    clock.expected = 12.0
    with clock.track("repair", 3):
        pass
    clock.say("a line")
    assert titles.seen == ["[1.5 min] export", "[1.5 of about 12 min] repair", "a line"]
