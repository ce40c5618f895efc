"""Ranges while training: the formulas, what is looked at, and PACT's clip."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tersely.errors import UserError
from tersely.qat import QatSettings
from tersely.qat.input_quantizer import InputQuantizer, Sight
from tersely.quant_map import Range

MOVING = QatSettings(use_pact=False, moving_rate=0.7)


def batches(count: int = 12) -> list[torch.Tensor]:
    made = torch.Generator().manual_seed(0)
    return [torch.randn(4, 6, 8, generator=made) * (1 + step) for step in range(count)]


def looked(quantizer: InputQuantizer, sight: Sight, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    sight.on, sight.mask = True, torch.ones(x.shape[:2], dtype=torch.bool) if mask is None else mask
    output = quantizer(x)
    sight.on = False
    return output


def test_moving_average_is_the_formula_on_each_side_of_zero():
    sight = Sight()
    quantizer = InputQuantizer(Range(-2.0, 3.0), MOVING, sight)
    accum, state = np.array([2.0, 3.0]), 1.0
    for x in batches():
        looked(quantizer, sight, x)
        quantizer.fold(quantizer.take_seen())
        accum = 0.7 * accum + np.array([-float(x.min()), float(x.max())])
        state = 0.7 * state + 1
        found = quantizer.range()
        assert (-found.low, found.high) == pytest.approx(tuple(accum / state), rel=1e-12)


def test_window_takes_the_largest_and_then_is_frozen():
    sight = Sight()
    settings = QatSettings(use_pact=False, activation_quantize_type="range_abs_max")
    quantizer = InputQuantizer(Range(-0.1, 0.1), settings, sight, window=5)
    for x in batches():
        looked(quantizer, sight, x)
        quantizer.fold(quantizer.take_seen())
    seen = torch.stack(batches()[:5])
    assert quantizer.range() == Range(float(seen.min()), float(seen.max()))


def test_ranges_at_run_time_are_those_of_the_batch_padding_included():
    quantizer = InputQuantizer(Range(-1, 1), QatSettings(activation_quantize_type="abs_max"), Sight())
    assert quantizer.range() is None
    assert quantizer.alpha is None
    x = batches()[3]
    expected = Range(float(x.min()), float(x.max())).fake_quantize(x.numpy().copy())
    assert np.abs(quantizer(x).numpy() - expected).max() < 1e-5


def test_forward_rounds_to_the_exported_range():
    smooth = np.linspace(0.5, 2, 8).astype(np.float32)
    quantizer = InputQuantizer(Range(-2.0, 3.0), MOVING, Sight(), smooth=smooth)
    x = batches()[1]
    expected = quantizer.range().fake_quantize(x.numpy() * (1 / smooth))
    assert np.array_equal(quantizer(x).numpy(), expected)


def test_padding_and_positions_that_no_one_reads_are_not_looked_at():
    x = torch.zeros(2, 3, 4)
    x[0, 0, 0], x[0, 1, 1], x[1, 2, 2] = 1.0, 5.0, 99.0
    mask = torch.tensor([[True, True, True], [True, True, False]])
    for first_only, reach in ((False, 5.0), (True, 1.0)):
        sight = Sight()
        quantizer = InputQuantizer(Range(-1, 1), MOVING, sight, first_only=first_only)
        looked(quantizer, sight, x, mask)
        assert quantizer.take_seen().tolist() == [0.0, reach]
        assert quantizer.take_seen().tolist() == [-1.0, -1.0]


def test_parts_of_a_batch_count_as_one():
    at_once, parts = ((sight := Sight(), InputQuantizer(Range(-1, 1), MOVING, sight)) for _ in range(2))
    x = batches()[2]
    looked(at_once[1], at_once[0], x)
    for part in x.split(1):
        looked(parts[1], parts[0], part)
    assert torch.equal(at_once[1].take_seen(), parts[1].take_seen())


def test_clip_is_learnt_without_weight_decay_and_bounds_the_range():
    sight = Sight()
    quantizer = InputQuantizer(Range(-2.0, 3.0), QatSettings(), sight)
    assert quantizer.alpha.item() == 3.0
    optimizer = torch.optim.AdamW(quantizer.parameters(), lr=0.05, weight_decay=0.0)
    for x in batches(6):
        output = looked(quantizer, sight, 3 * x)
        output.square().mean().backward()  # a smaller output is better: so is a smaller clip
        optimizer.step()
        optimizer.zero_grad()
        quantizer.fold(quantizer.take_seen())
    alpha = quantizer.alpha.item()
    assert 2.0 < alpha < 2.8
    found = quantizer.range()
    assert found.high == pytest.approx(alpha)
    assert -found.low <= alpha * (1 + 1e-6)
    # What is beyond the clip is rounded to the clip, with and without the observer's lag.
    assert quantizer(torch.tensor([[[50.0] * 8]])).max().item() == pytest.approx(alpha, rel=0.01)


def test_inputs_that_are_not_finite_are_told():
    quantizer = InputQuantizer(Range(-1.0, 1.0), MOVING, Sight())
    quantizer.fold(torch.tensor([float("inf"), 1.0], dtype=torch.float64))
    with pytest.raises(UserError, match="Training diverged"):
        quantizer.range()


def test_clip_stays_above_zero_and_can_come_back():
    quantizer = InputQuantizer(Range(-1.0, 1.0), QatSettings(), Sight())
    with torch.no_grad():
        quantizer.share.fill_(-4.0)
    assert quantizer.alpha.item() > 0
    quantizer(torch.full((1, 1, 8), 9.0)).sum().backward()
    assert quantizer.share.grad.item() == 8.0
