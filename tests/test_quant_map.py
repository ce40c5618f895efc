"""`QuantMap`: steps and zero points as the standard means them; what is saved is what is loaded, without pickles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tersely.errors import UserError
from tersely.quant_map import QuantLayer, QuantMap, QuantProduct, QuantTable, Range

RANDOM = np.random.default_rng(8)
EDGES = st.floats(0, 2.0**100, width=32)


def layer(
    *, wide: int = 6, out: int = 4, per_tensor: bool = False, more: bool = False, dynamic: bool = False
) -> QuantLayer:
    return QuantLayer(
        None if dynamic else Range(-1.5, 0.1 + 0.2),
        RANDOM.integers(-127, 128, (wide, out)).astype(np.int8),
        RANDOM.uniform(0.1, 1, 1 if per_tensor else out).astype(np.float32),
        RANDOM.uniform(0.1, 1, wide).astype(np.float32) if more else None,
        RANDOM.normal(size=out).astype(np.float32) if more else None,
    )


def full_map() -> QuantMap:
    return QuantMap(
        layers={
            "encoder.0/query.weight": layer(more=True),
            "encoder.0/key.weight": layer(per_tensor=True),
            "层.weight": layer(dynamic=True),
        },
        tables={"words": QuantTable(RANDOM.integers(-127, 128, (9, 5)).astype(np.int8), np.ones(9, np.float32))},
        products={"/attention/MatMul_output_0": QuantProduct(Range(0, 1), Range(-2, 3))},
        left_float={"classifier.weight": "small", "/attention/MatMul_1": "not_asked"},
        cpu_classes=("amx", "vnni"),
    )


def same(left: QuantMap, right: QuantMap) -> bool:
    """Everything equal, the order and the types of arrays too."""

    def flat(quant_map: QuantMap) -> list[object]:
        held: list[object] = [quant_map.products, quant_map.left_float, quant_map.cpu_classes]
        for name, found in (*quant_map.layers.items(), *quant_map.tables.items()):
            for part, value in vars(found).items():
                bits = (value.dtype, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value
                held.append((name, part, bits))
        return held

    return flat(left) == flat(right)


@given(EDGES, EDGES)
def test_unsigned_codes_hold_the_range_and_zero_exactly(below: float, above: float):
    range_ = Range(-below, above)
    step, zero = range_.unsigned()
    assert step.dtype == np.float32
    assert 0 <= zero <= 255
    assert step >= np.finfo(np.float32).tiny  # engines that flush smaller numbers to zero would divide by it
    # The ends move by the rounding of the zero point at most: half a step.
    assert (0 - zero) * float(step) <= -below + 0.5001 * float(step)
    assert (255 - zero) * float(step) >= above - 0.5001 * float(step)


@given(EDGES, EDGES)
def test_signed_codes_hold_the_larger_side(below: float, above: float):
    step = Range(-below, above).symmetric()
    assert step.dtype == np.float32
    assert step >= np.finfo(np.float32).tiny
    assert 127 * float(step) >= max(below, above) * (1 - 1e-6)


@pytest.mark.parametrize(("low", "zero"), [(0, 0), (-0.5, 85), (-3, 191)])
def test_zero_point_is_where_zero_lies(low: float, zero: int):
    assert Range(low, 1).unsigned()[1] == zero


def test_input_that_is_never_positive_has_the_last_code_as_zero():
    assert Range(-2, 0).unsigned() == (np.float32(2 / 255), 255)


@pytest.mark.parametrize(("low", "high"), [(0.1, 1), (-1, -0.1), (np.nan, 1), (0, np.inf), (-np.inf, 0), (1, -1)])
def test_range_without_zero_or_end_is_refused(low: float, high: float):
    with pytest.raises(ValueError, match="finite and hold 0"):
        Range(low, high)


def test_reason_that_is_no_code_is_refused():
    with pytest.raises(ValueError, match="no reason code 'tired'"):
        QuantMap(left_float={"w": "tired"})


@pytest.mark.parametrize(
    "changed",
    [
        {"integers": np.zeros((6, 4), np.int32)},
        {"integers": np.zeros(6, np.int8)},
        {"scales": np.ones(6, np.float32)},
        {"scales": np.ones(4)},
        {"smooth": np.ones(4, np.float32)},
        {"bias": np.ones(6, np.float32)},
        {"bias": np.ones((1, 4), np.float32)},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_layer_whose_parts_do_not_fit_is_refused(changed: dict[str, np.ndarray]):
    with pytest.raises(ValueError, match=next(iter(changed))):
        QuantLayer(**(vars(layer()) | changed))


@pytest.mark.parametrize("scales", [np.ones(5, np.float32), np.ones((9, 1), np.float32), np.ones(9)])
def test_table_whose_scales_do_not_fit_is_refused(scales: np.ndarray):
    with pytest.raises(ValueError, match="scales"):
        QuantTable(np.zeros((9, 5), np.int8), scales)


@pytest.mark.parametrize("quant_map", [QuantMap(), full_map()], ids=["empty", "full"])
def test_saved_map_is_loaded_as_it_was(quant_map: QuantMap, tmp_path: Path):
    quant_map.save(tmp_path / "map.npz")
    assert same(QuantMap.load(tmp_path / "map.npz"), quant_map)


def test_same_map_gives_the_same_bytes(tmp_path: Path):
    quant_map = full_map()
    quant_map.save(tmp_path / "one.npz")
    QuantMap.load(tmp_path / "one.npz").save(str(tmp_path / "other"))  # no ending is put on
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "other").read_bytes()


def broken(path: Path, how: str) -> None:
    full_map().save(path)
    content = path.read_bytes()
    if how == "gone":
        path.unlink()
    elif how == "a folder":
        path.unlink()
        path.mkdir()
    elif how == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif how == "a flipped bit":
        place = content.index(b"NUMPY") + 200
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "text":
        path.write_text("layers: none")
    elif how == "one array":
        np.save(path.open("wb"), np.ones(3))
    elif how == "another npz":
        np.savez(path, weights=np.ones(3))
    elif how == "a pickle":
        np.savez(path, notes=np.array([{"left_float": {}}], dtype=object))
    elif how == "notes of another kind":
        np.savez(path, notes=np.frombuffer(b"[1, 2]", np.uint8))
    elif how == "a part too few":
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files if not name.startswith("layer/scales")}
        np.savez(path, **arrays)
    elif how == "another part":
        with np.load(path) as file:
            np.savez(path, **{name: file[name] for name in file.files}, **{"conv/w": np.ones(1)})


BREAKS = (
    "gone", "a folder", "cut", "a flipped bit", "empty", "text", "one array", "another npz", "a pickle",
    "notes of another kind", "a part too few", "another part",
)  # fmt: skip


@pytest.mark.parametrize("how", BREAKS)
def test_file_that_holds_no_map_is_refused(how: str, tmp_path: Path):
    path = tmp_path / "map.npz"
    broken(path, how)
    with pytest.raises(UserError, match="not a saved QuantMap") as caught:
        QuantMap.load(path)
    assert caught.value.where == str(path)
