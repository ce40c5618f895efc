"""Rounding and its gradients, against NumPy, torch's own fake quantization and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tersely.qat.rounding import RoundInput, RoundWeight, abs_max_scales, weight_integers
from tersely.quant_map import Range
from tersely.quantize.weights import abs_max_scales as scales_of
from tersely.quantize.weights import dequantize, quantize_weight, round_weight, unsafe_pairs


def codes(low: float, high: float) -> tuple[torch.Tensor, torch.Tensor]:
    step, zero = Range(low, high).unsigned()
    return torch.tensor(step), torch.tensor(float(zero))


@pytest.mark.parametrize(("low", "high"), [(-1.0, 3.0), (-0.17, 8.0), (-2.0, 2.0), (0.0, 1.0), (-4.0, 0.0)])
def test_inputs_are_rounded_as_by_numpy_and_by_torch(low, high):
    x = torch.randn(200, 16) * 3
    step, zero = codes(low, high)
    got = RoundInput.apply(x, step, zero, None)
    assert np.array_equal(got.numpy(), Range(low, high).fake_quantize(x.numpy().copy()))
    theirs = torch.fake_quantize_per_tensor_affine(x, float(step), int(zero), 0, 255)
    # torch multiplies by 1 / step: a value between two codes may fall to the other.
    assert (got - theirs).abs().max() <= 1.01 * step
    assert (got != theirs).float().mean() < 1e-3


def test_gradients_pass_inside_of_the_codes_and_the_clip_takes_what_lies_beyond():
    x = torch.tensor([-9.0, -2.0, -0.5, 0.0, 1.5, 2.0, 7.0], requires_grad=True)
    clip = torch.tensor(2.0, requires_grad=True)
    step, zero = codes(-1.0, 2.0)
    gradient = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])
    (RoundInput.apply(x, step, zero, clip) * gradient).sum().backward()
    # Inside: -0.5, 0, 1.5 and 2, which is the last code. Beyond ±2: -9 and -2 with sign -1, 2 and 7 with sign 1.
    assert x.grad.tolist() == [0, 0, 4, 8, 16, 32, 0]
    assert clip.grad.item() == -1 - 2 + 32 + 64


def test_clips_gradient_is_that_of_clipping():
    x = torch.randn(1000, dtype=torch.float32) * 2
    gradient = torch.randn(1000)
    ours, theirs = (torch.tensor(1.3, requires_grad=True) for _ in range(2))
    (RoundInput.apply(x, *codes(-1.3, 1.3), ours) * gradient).sum().backward()
    (torch.minimum(torch.maximum(x, -theirs), theirs) * gradient).sum().backward()
    assert ours.grad.item() == pytest.approx(theirs.grad.item(), rel=1e-5)


@pytest.mark.parametrize("kind", ["channel_wise_abs_max", "abs_max"])
@pytest.mark.parametrize("classes", ["all", "vnni"])
@pytest.mark.parametrize("wide", [1, 7, 64])
def test_weights_are_those_of_the_graph_bit_for_bit(kind, classes, wide):
    weight = np.random.default_rng(wide).normal(0, 1, (wide, 48)).astype(np.float32)
    weight[:, 5] = 0
    per_channel, safe = kind != "abs_max", classes == "all"
    ours = torch.from_numpy(weight.T.copy())
    scales = abs_max_scales(ours, per_channel, safe)
    assert np.array_equal(scales.flatten().numpy(), scales_of(weight, kind, cpu_classes=classes))
    expected = quantize_weight(weight, kind, cpu_classes=classes)
    assert np.array_equal(RoundWeight.apply(ours, scales, safe).T.numpy(), dequantize(expected))
    # Finer steps clip, and pairs are settled.
    finer = 0.6 * scales
    got = weight_integers(ours, finer, safe).T.numpy()
    theirs = round_weight(weight, finer.flatten().numpy(), cpu_classes=classes)
    assert np.array_equal(got, theirs.integers)
    assert not (safe and unsafe_pairs(theirs.integers))


def test_weights_of_exact_classes_are_torchs_own_fake_quantization():
    weight = torch.randn(48, 64)
    scales = abs_max_scales(weight, True, False)
    theirs = torch.fake_quantize_per_channel_affine(weight, scales.flatten(), torch.zeros(48).int(), 0, -127, 127)
    ours = RoundWeight.apply(weight, scales, False)
    assert (ours != theirs).float().mean() < 1e-3
    assert ((ours - theirs).abs() <= 1.01 * scales).all()


def test_gradients_of_weights_pass_where_nothing_is_clipped():
    weight = torch.tensor([[1.0, -0.2, 0.4, 0.05]], requires_grad=True)
    scales = torch.tensor([[0.5 / 127]])
    gradient = torch.tensor([[3.0, 5.0, 7.0, 9.0]])
    (RoundWeight.apply(weight, scales, True) * gradient).sum().backward()
    assert weight.grad.tolist() == [[0.0, 5.0, 7.0, 9.0]]
