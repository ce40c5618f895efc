"""`QuantMap`: all that quantizers decide and all that graph writers read, by the weight's own name. Plain NumPy."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import UserError

Floats = NDArray[np.float32]
Integers = NDArray[np.int8]
_TINY = float(np.finfo(np.float32).tiny)

REASONS = {
    "skipped": "named by --skip_layers",
    "sensitive": "left float by its measured harm",
    "small": "too small to pay",
    "not_finite": "its input or weight holds NaN or infinity",
    "constant": "its input never changes",
    "unseen": "no calibration row reached it",
    "not_asked": "the strategy does not ask for it",
    "harmful": "in INT8 it would move the answers of held-out rows",
}
"""Why something stays float: the codes of the report, and what they mean."""


@dataclass(frozen=True)
class Range:
    """What an input may hold; 0 lies inside, so that padding and silence are exact.

    >>> step, zero = Range(-1, 3).unsigned()
    >>> round(float(step), 4), zero
    (0.0157, 64)
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.low) and np.isfinite(self.high) and self.low <= 0 <= self.high):
            raise ValueError(f"A range must be finite and hold 0. Got {self.low} to {self.high}.")

    def unsigned(self) -> tuple[np.float32, int]:
        """Step and zero point of u8 codes 0 … 255."""
        step = np.float32(max((self.high - self.low) / 255, _TINY))
        return step, round(min(max(-self.low / float(step), 0), 255))

    def fake_quantize(self, x: Floats) -> Floats:
        """Round to the 256 u8 codes and back, as engines with u8 inputs do.

        >>> Range(-5, 250).fake_quantize(np.array([-9.0, 0.4, 0.6, 300.0], np.float32)).tolist()
        [-5.0, 0.0, 1.0, 250.0]
        """
        step, zero = self.unsigned()
        rounded = x / step
        np.rint(rounded, out=rounded)
        np.clip(rounded, -zero, 255 - zero, out=rounded)
        rounded *= step
        return rounded

    def symmetric(self) -> np.float32:
        """Step of s8 codes -127 … 127 with zero point 0."""
        return np.float32(max(self.high / 127, -self.low / 127, _TINY))


@dataclass(frozen=True)
class QuantLayer:
    """One weighted matmul in integers: input [..., in] times weight [in, out].

    `range` is that of the input after it was divided by `smooth` [in] (None: not smoothed); None as a range: taken
    from each batch at run time. `integers` [in, out] times `scales` ([out], or [1] for one per tensor) is the weight
    already multiplied by `smooth`. `bias` [out] takes the place of the graph's own (None: that stays).
    """

    range: Range | None
    integers: Integers
    scales: Floats
    smooth: Floats | None = None
    bias: Floats | None = None

    def __post_init__(self) -> None:
        wide, out = _matrix(self.integers)
        _fit("scales", self.scales, (out,), (1,))
        _fit("smooth", self.smooth, (wide,))
        _fit("bias", self.bias, (out,))


@dataclass(frozen=True)
class QuantTable:
    """An embedding table in integers [rows, width] with one scale per row [rows]."""

    integers: Integers
    scales: Floats

    def __post_init__(self) -> None:
        _fit("scales", self.scales, (_matrix(self.integers)[0],))


@dataclass(frozen=True)
class QuantProduct:
    """A product of two activations (QKᵀ, PV) in integers: the ranges of its two sides."""

    left: Range
    right: Range


@dataclass(frozen=True)
class QuantMap:
    """What becomes of every weight of a graph.

    `layers` and `tables` by the weight's name, `products` by the name of the graph's value that they give,
    `left_float` by either name with a code of `REASONS`. `cpu_classes` are those on which the integers are right,
    `product_classes` those whose graphs take the products in integers.
    """

    layers: Mapping[str, QuantLayer] = field(default_factory=dict)
    tables: Mapping[str, QuantTable] = field(default_factory=dict)
    products: Mapping[str, QuantProduct] = field(default_factory=dict)
    left_float: Mapping[str, str] = field(default_factory=dict)
    cpu_classes: tuple[str, ...] = ("all",)
    product_classes: tuple[str, ...] = ("all",)

    def __post_init__(self) -> None:
        for name, reason in self.left_float.items():
            if reason not in REASONS:
                raise ValueError(f"There is no reason code '{reason}' (for {name}).")

    def save(self, path: str | Path) -> None:
        """Write one npz; the same map gives the same bytes."""
        arrays: dict[str, NDArray[Any]] = {}
        for name, layer in self.layers.items():
            parts = vars(layer) | {"range": None if layer.range is None else _pair(layer.range)}
            for part in ("integers", "scales", "range", "smooth", "bias"):
                if parts[part] is not None:
                    arrays[f"layer/{part}/{name}"] = parts[part]
        for name, table in self.tables.items():
            arrays |= {f"table/integers/{name}": table.integers, f"table/scales/{name}": table.scales}
        for name, product in self.products.items():
            arrays[f"product/ranges/{name}"] = np.stack([_pair(product.left), _pair(product.right)])
        notes = {
            "left_float": dict(self.left_float),
            "cpu_classes": list(self.cpu_classes),
            "product_classes": list(self.product_classes),
        }
        arrays["notes"] = np.frombuffer(json.dumps(notes, ensure_ascii=False).encode(), np.uint8)
        with Path(path).open("wb") as stream:
            np.savez(stream, **arrays)  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: str | Path) -> QuantMap:
        """Read what `save` wrote; nothing in the file is executed."""
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            notes = json.loads(arrays.pop("notes").tobytes())
            parts: dict[str, dict[str, dict[str, NDArray[Any]]]] = {"layer": {}, "table": {}, "product": {}}
            for name, array in arrays.items():
                kind, part, weight = name.split("/", 2)
                parts[kind].setdefault(weight, {})[part] = array
            return cls(
                {name: _layer(**found) for name, found in parts["layer"].items()},
                {name: QuantTable(**found) for name, found in parts["table"].items()},
                {name: QuantProduct(*map(_range, found["ranges"])) for name, found in parts["product"].items()},
                notes["left_float"],
                tuple(notes["cpu_classes"]),
                tuple(notes["product_classes"]),
            )
        except _UNREADABLE as error:
            raise UserError(f"This is not a saved QuantMap: {error}.", where=str(path)) from None


# Damaged zip, no zip, another npz, other contents: NumPy gives each its own exception.
_UNREADABLE = (
    OSError, EOFError, zipfile.BadZipFile, zlib.error, ValueError, KeyError, TypeError, AttributeError,
)  # fmt: skip


def _matrix(integers: Integers) -> tuple[int, int]:
    if integers.dtype != np.int8 or integers.ndim != 2:
        raise ValueError(f"The integers must be int8 [in, out]. Got {integers.dtype} {list(integers.shape)}.")
    rows, columns = integers.shape
    return rows, columns


def _fit(part: str, array: Floats | None, *shapes: tuple[int]) -> None:
    if array is not None and (array.dtype != np.float32 or array.shape not in shapes):
        raise ValueError(f"The {part} must be float32 {list(shapes[0])}. Got {array.dtype} {list(array.shape)}.")


def _pair(range_: Range) -> NDArray[np.float64]:
    return np.array([range_.low, range_.high], np.float64)


def _range(pair: NDArray[Any]) -> Range:
    return Range(float(pair[0]), float(pair[1]))


def _layer(range: NDArray[Any] | None = None, **parts: NDArray[Any]) -> QuantLayer:
    return QuantLayer(None if range is None else _range(range), **parts)
