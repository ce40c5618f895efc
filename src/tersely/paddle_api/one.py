"""`One`: a tuple of one that stands for what it holds."""

from __future__ import annotations

from typing import Any


class One(tuple):  # type: ignore[type-arg]
    """What a parser of one dataclass gives: scripts unpack it, or use it as the dataclass itself.

    >>> from types import SimpleNamespace
    >>> one = One([SimpleNamespace(seed=42)])
    >>> one.seed = 7
    >>> (inner,) = one
    >>> inner.seed, one.seed
    (7, 7)
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not self:  # Python's own questions are about the tuple
            raise AttributeError(name)
        return getattr(self[0], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self[0], name, value)
