"""What a command gave."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Ran:
    """Exit code, standard output, standard error."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """All of standard output as one JSON value."""
        return json.loads(self.out)


Tersely = Callable[..., Ran]
