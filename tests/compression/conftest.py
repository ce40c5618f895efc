"""Models by hand and short timings, shared by all tests of compress runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compressible import Place, write_place

Places = Callable[..., Place]


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Places:
    """A model by head (and harmful layer) with its rows. Not to be written to."""
    made: dict[tuple[str, int | None], Place] = {}

    def make(head: str = "SequenceClassification", harmful: int | None = None) -> Place:
        if (head, harmful) not in made:
            folder = tmp_path_factory.mktemp("places") / f"{head}-{harmful}"
            made[head, harmful] = write_place(folder, head, harmful=harmful)
        return made[head, harmful]

    return make


@pytest.fixture(scope="session", autouse=True)
def timings(short_timings: None) -> None:
    """All runs here are timed shortly."""
