"""INT8 tables: every row for itself."""

from __future__ import annotations

import numpy as np
import pytest

from tersely.errors import UserError
from tersely.quantize.weights import quantize_table

RANDOM = np.random.default_rng(9)


def test_each_number_moves_by_half_a_step_of_its_row_at_most() -> None:
    table = (RANDOM.normal(size=(9000, 16)) * RANDOM.lognormal(0, 3, (9000, 1))).astype(np.float32)
    found = quantize_table(table)
    steps = np.abs(table).max(axis=1) / 127
    np.testing.assert_allclose(found.scales, steps, rtol=1e-6)
    assert found.integers.dtype == np.int8
    assert (np.abs(found.integers.astype(int)).max(axis=1) == 127).all()
    assert (np.abs(table - found.integers * found.scales[:, None]) <= steps[:, None] * 0.5001).all()


def test_rows_do_not_depend_on_each_other() -> None:
    table = RANDOM.normal(size=(50, 8)).astype(np.float32)
    table[7] *= 1000
    together, alone = quantize_table(table), quantize_table(table[20:21])
    np.testing.assert_array_equal(together.integers[20:21], alone.integers)
    assert together.scales[20] == alone.scales[0]


def test_rows_of_zeros_stay_zeros() -> None:
    table = RANDOM.normal(size=(3, 4)).astype(np.float32)
    table[1] = 0
    table[2] = 1e-44
    found = quantize_table(table)
    assert not found.integers[1].any()
    assert (found.scales > 0).all()
    assert np.isfinite(found.scales).all()
    assert quantize_table(np.empty((0, 4), np.float32)).integers.shape == (0, 4)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused(bad: float) -> None:
    table = np.ones((3, 2), np.float32)
    table[2, 1] = bad
    with pytest.raises(UserError, match="NaN or infinity"):
        quantize_table(table)
