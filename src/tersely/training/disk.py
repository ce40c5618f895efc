"""A disk that is full, said in one way by all who write to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from safetensors import SafetensorError


@contextmanager
def as_os_errors() -> Iterator[None]:
    """Raise what safetensors and torch call a failed write as the OSError that it is."""
    try:
        yield
    except SafetensorError as error:
        raise OSError(str(error)) from error
    except RuntimeError as error:
        if "PytorchStreamWriter" not in str(error) and "inline_container" not in str(error):
            raise
        raise OSError(str(error).splitlines()[0]) from error
