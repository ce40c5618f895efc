"""The two ways to ask a model: SimpleServing's and the Open Inference Protocol's. A body in, a body out."""

from __future__ import annotations

import json
from typing import NamedTuple, Protocol

from . import simple, v2, v2_binary
from .batching import Batcher
from .exchange import JSON, Headers, Scope, header
from .limits import Limits, read_json
from .models import Model
from .parameters import offered

_LENGTH = v2_binary.HEADER.lower().encode()


class Reply(NamedTuple):
    """What goes back with status 200."""

    body: bytes
    content_type: bytes = JSON
    headers: Headers = ()


class Endpoint(Protocol):
    """One model asked in one way; raises `Refusal`."""

    model: Model
    batcher: Batcher

    async def __call__(self, scope: Scope, body: bytes) -> Reply:
        """Answer a request."""


class Simple:
    """`POST /models/<name>`."""

    def __init__(self, model: Model, batcher: Batcher, limits: Limits) -> None:
        self.model, self.batcher, self._limits, self._schemas = model, batcher, limits, offered(model)

    async def __call__(self, scope: Scope, body: bytes) -> Reply:
        """Answer a request."""
        asked = simple.read(read_json(body), self.model, self._schemas, self._limits)
        answers = await self.batcher.answer(asked.task, asked.examples)
        content = {"result": self.model.wire.result(asked.examples, answers, asked.parameters)}
        return Reply(json.dumps(content, ensure_ascii=False, allow_nan=False).encode("utf-8"))


class Infer:
    """`POST /v2/models/<name>/infer`."""

    def __init__(self, model: Model, batcher: Batcher, limits: Limits) -> None:
        self.model, self.batcher, self._limits, self._schemas = model, batcher, limits, offered(model, tensors=True)

    async def __call__(self, scope: Scope, body: bytes) -> Reply:
        """Answer a request, in JSON or with binary tensors."""
        inference = v2.read(body, header(scope, _LENGTH), self.model, self._schemas, self._limits)
        answers = await self.batcher.answer(inference.asked.task, inference.asked.examples)
        content, json_length = v2.answer(self.model, inference, answers)
        if json_length is None:
            return Reply(content)
        return Reply(content, b"application/octet-stream", ((_LENGTH, b"%d" % json_length),))
