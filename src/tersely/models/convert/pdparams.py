"""Read a `.pdparams` file. It is a pickle, and nothing that it names is ever called.

Where a pickle names a function or a class, stand-ins of this file take its place. They know numbers, arrays of numbers,
tuples and dictionaries; any other name ends the reading.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import UserError

Arrays = dict[str, NDArray[Any]]

TABLE_OF_NAMES = "StructuredToParameterName@@"
"""Entry with the names that parameters had inside Paddle."""
TABLE_OF_SLICES = "UnpackBigParamInfor@@"
"""Entry that says which slices were one array above 1 GB (`paddle.save` with a protocol below 4)."""


def read_pdparams(path: str | Path) -> Arrays:
    """Read all arrays by name; anything else in the file is a UserError, and is not executed.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".pdparams") as file:
    ...     _ = file.write(pickle.dumps({"norm.bias": np.zeros(3, "float32")}, protocol=4))
    ...     file.flush()
    ...     read_pdparams(file.name)["norm.bias"].shape
    (3,)
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            content = _Reader(file, encoding="latin1").load()
    except _Refused as refused:
        what = f"The checkpoint names '{refused}', which is no array of numbers; it was not executed."
        hint = "Use a file from a source that you trust, written by paddle.save(model.state_dict(), …)."
        raise UserError(what, where=str(path), hint=hint) from None
    except Exception as error:  # whatever broken bytes make pickle and NumPy raise
        reason = f"{type(error).__name__}: {error}".rstrip(".: ")
        hint = "It may be cut short: copy it anew."
        raise UserError(f"The checkpoint cannot be read ({reason}).", where=str(path), hint=hint) from error
    return _arrays(content, str(path))


class _Refused(pickle.UnpicklingError):
    """A name outside the table below."""


class _Array:
    """What stands in for an ndarray until its state has come."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: NDArray[Any] | None = None

    def __setstate__(self, state: tuple[int, tuple[int, ...], _Kind, bool, bytes | str]) -> None:
        _, shape, kind, fortran, raw = state
        if not all(type(length) is int and length >= 0 for length in shape):
            raise ValueError("an array's shape must be whole numbers")
        # Python 2 wrote text where Python 3 writes bytes.
        content = raw.encode("latin1") if isinstance(raw, str) else raw
        numbers = np.frombuffer(content, kind.dtype()).astype(kind.name, copy=False)
        self.value = numbers.reshape(shape, order="F" if fortran else "C")


class _Kind:
    """What stands in for a dtype: plain numbers only."""

    __slots__ = ("name", "order")

    def __init__(self, name: str) -> None:
        if not (isinstance(name, str) and re.fullmatch("[fiu][1248]|b1", name)):
            raise _Refused(f"numpy.dtype({name!r})")
        self.name, self.order = name, "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] not in ("<", ">", "|", "="):
            raise ValueError(f"'{state[1]}' is no order of bytes")
        self.order = state[1]

    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.order + self.name)


class _StandIn:
    """Stands in for a function. A file can call it, and leave nothing behind in it."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    def __call__(self, *arguments: Any) -> Any:
        return self._make(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise ValueError("a function has no state")


def _tuple(items: tuple[Any, ...]) -> tuple[Any, ...]:
    """For `tuple((name, array))`, which is how Paddle writes a tensor."""
    if not isinstance(items, tuple):
        raise ValueError("a tensor must be a tuple of its name and its array")
    return items


def _bytes(text: str, encoding: str) -> bytes:
    """For `_codecs.encode(text, "latin1")`, which is how protocol 2 writes bytes."""
    if not isinstance(text, str) or encoding != "latin1":
        raise ValueError("bytes must be written in latin1")
    return text.encode("latin1")


_STAND_INS: Mapping[str, object] = {
    "numpy.ndarray": "ndarray",  # only ever an argument of the next two
    "numpy.core.multiarray._reconstruct": _StandIn(lambda *_: _Array()),  # (ndarray, (0,), b"b")
    "numpy._core.multiarray._reconstruct": _StandIn(lambda *_: _Array()),
    "numpy.dtype": _StandIn(lambda name, *_: _Kind(name)),  # ("f4", False, True)
    "builtins.tuple": _StandIn(_tuple),
    "__builtin__.tuple": _StandIn(_tuple),
    "collections.OrderedDict": _StandIn(dict),
    "_codecs.encode": _StandIn(_bytes),
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Give a stand-in; nothing is imported or looked up anywhere else."""
        full = f"{module}.{name}"
        if full not in _STAND_INS:
            raise _Refused(full)
        return _STAND_INS[full]


def _arrays(content: Any, where: str) -> Arrays:
    hint = "Give the file that paddle.save(model.state_dict(), …) wrote."
    if not isinstance(content, dict):
        what = f"The checkpoint must be a dictionary of arrays. Got {type(content).__name__}."
        raise UserError(what, where=where, hint=hint)
    slices = content.pop(TABLE_OF_SLICES, {})
    content.pop(TABLE_OF_NAMES, None)
    arrays: Arrays = {}
    for name, value in content.items():
        if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
            value = value[1]
        if not isinstance(name, str) or not isinstance(value, _Array) or value.value is None:
            what = f"The checkpoint must hold nothing but arrays. Got {type(value).__name__} under {name!r}."
            raise UserError(what, where=where, hint=hint)
        arrays[name] = value.value
    try:
        for name, sliced in slices.items():
            parts = [arrays.pop(part) for part in sliced["slices"]]
            arrays[name] = np.concatenate(parts).reshape(sliced["OriginShape"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        what = f"The checkpoint's slices do not fit together ({type(error).__name__}: {error})."
        raise UserError(what, where=where, hint="Copy it anew.") from None
    return arrays
