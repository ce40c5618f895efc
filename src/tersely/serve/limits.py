"""What a request may ask for at most, and how one that asks for more is refused: a status and one line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ..errors import UserError

MAX_HEAD = 1 << 16
"""Bytes of a request line with its headers; no client needs a tenth of it."""

DEEPEST = 16
"""Lists and objects within each other; what the routes take has at most five."""


@dataclass(frozen=True)
class Limits:
    """Bounds of a request and of what waits."""

    max_body: int = field(default=1 << 20, metadata={"help": "bytes of a request's body at most (1048576)"})
    max_texts: int = field(default=128, metadata={"help": "texts of a request at most (128)"})
    max_text_length: int = field(default=20_000, metadata={"help": "characters of a text at most (20000)"})
    max_queue: int = field(default=256, metadata={"help": "texts that wait for a model at most; more get 503 (256)"})
    max_connections: int = field(default=1024, metadata={"help": "open connections of a worker at most (1024)"})
    timeout: float = field(default=30.0, metadata={"help": "seconds after which a waiting request gets 504 (30)"})
    client_timeout: float = field(
        default=10.0,
        metadata={"help": "seconds that a client may take to send a request or to take in its answer (10)"},
    )

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not 0 < value < float("inf"):
                raise UserError(f"The '--{each.name}' option must be above 0. Got {value}.")
        if self.max_texts > self.max_queue:
            raise UserError(
                f"The '--max_texts' option is {self.max_texts}, more than may wait ('--max_queue' {self.max_queue}).",
                hint="Such a request would never be taken. Raise --max_queue or lower --max_texts.",
            )


class Refusal(Exception):
    """A request that gets no answer: the status, one line, and further headers.

    >>> print(Refusal(422, "There is no text."))
    There is no text.
    """

    def __init__(self, status: int, line: str, headers: Mapping[str, str] | None = None) -> None:
        self.status, self.line, self.headers = status, line, dict(headers or {})
        super().__init__(line)


def read_json(body: bytes) -> Any:
    """A body's JSON: UTF-8, not nested deeper than anything that is taken.

    >>> read_json(b'{"data": 1}')
    {'data': 1}
    """
    try:
        content = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise Refusal(422, "The body is not UTF-8.") from None
    except RecursionError:
        raise Refusal(422, f"The body's JSON is nested more than {DEEPEST} deep.") from None
    except ValueError as error:
        raise Refusal(422, f"The body is not JSON: {error}.") from None
    # Only what has many brackets can be deep; short bodies are not walked through.
    if body.count(b"[") + body.count(b"{") > DEEPEST and _depth_exceeds(content, DEEPEST):
        raise Refusal(422, f"The body's JSON is nested more than {DEEPEST} deep.")
    return content


def checked_text(value: Any, what: str, limits: Limits) -> str:
    """A text that is not too long and that UTF-8 can spell."""
    if not isinstance(value, str):
        raise Refusal(422, f"{what} must be a text. Got {shown(value)}.")
    if len(value) > limits.max_text_length:
        raise Refusal(422, f"{what} has {len(value)} characters, of which {limits.max_text_length} are allowed.")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:  # half of a surrogate pair, which JSON can spell
            raise Refusal(422, f"{what} is not valid Unicode: it has half a surrogate pair.") from None
    return value


def shown(value: Any) -> str:
    """What came, in JSON's words and briefly, for messages."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")


def _depth_exceeds(content: Any, deepest: int) -> bool:
    level = [content]
    for _ in range(deepest):
        level = [
            part
            for value in level
            if isinstance(value, (dict, list))
            for part in (value.values() if isinstance(value, dict) else value)
            if isinstance(part, (dict, list))
        ]
        if not level:
            return False
    return True
