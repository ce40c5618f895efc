"""The first look: exact maxima per channel, and a fair draw of tokens that does not grow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from reference import Counter, make_features, tokens_of, torch_inputs

from tersely.quantize.smooth import TOKENS, InputSample, sample_inputs
from tersely.quantize.targets import find_targets

FEATURES = make_features(60)
FIRST = "layer_norm"


def look(proto: Any, features: Any = FEATURES, seed: int = 1, **options: Any) -> Any:
    return sample_inputs(proto, find_targets(proto).inputs, features, 0, seed=seed, **options)


def test_maxima_and_tokens_are_torch_s(small: Any) -> None:
    proto, module = small()
    rows = torch_inputs(module, FEATURES)
    found = look(proto)
    targets = find_targets(proto)
    assert {layer.input for layer in targets.layers} == set(found)
    for layer in targets.layers:
        tokens, sample = tokens_of(rows, layer.name), found[layer.input]
        np.testing.assert_allclose(sample.channel_max, np.abs(tokens).max(axis=0), atol=1e-4)
        assert sample.tokens.shape == (min(TOKENS, len(tokens)), layer.shape[0])
        nearest = [int(np.abs(tokens - token).max(axis=1).argmin()) for token in sample.tokens]
        np.testing.assert_allclose(sample.tokens, tokens[nearest], atol=1e-3)


def test_every_token_has_the_same_chance_whatever_the_batch() -> None:
    """Tokens of five batches of very unequal size; a fair draw takes of each in proportion."""
    sizes = (900, 40, 600, 3, 457)
    taken = np.zeros(len(sizes))
    for seed in range(60):
        sample = InputSample(np.random.default_rng(seed))
        for place, size in enumerate(sizes):
            sample.add(np.stack([np.full(size, place), np.arange(size)], axis=1).astype(np.float32))
        drawn = sample.tokens.astype(int)
        assert len(np.unique(drawn, axis=0)) == TOKENS  # and none comes twice
        taken += np.bincount(drawn[:, 0], minlength=len(sizes))
    expected = 60 * TOKENS * np.array(sizes) / sum(sizes)
    # Five standard deviations of a draw without replacement, at most those of one with.
    assert (np.abs(taken - expected) < 5 * np.sqrt(expected)).all()


def test_fewer_tokens_than_are_kept_are_all_kept() -> None:
    sample = InputSample(np.random.default_rng(0))
    for start in (0, 40):
        sample.add(np.arange(start, start + 40, dtype=np.float32)[:, None])
    assert sorted(sample.tokens[:, 0].tolist()) == list(range(80))


def test_draw_follows_the_seed(small: Any) -> None:
    proto = small().proto
    first, same, other = (look(proto, seed=seed)[FIRST].tokens for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)


def test_rows_run_once(small: Any) -> None:
    counter = Counter()
    look(small().proto, progress=counter)
    assert counter.counts == {"look": len(FEATURES)}


def test_no_rows_give_nothing_to_see(small: Any) -> None:
    sample = look(small().proto, [])[FIRST]
    assert (sample.channel_max.size, sample.tokens.size) == (0, 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite_show_in_the_maxima(bad: float) -> None:
    sample = InputSample(np.random.default_rng(0))
    for row in range(3):
        tokens = np.ones((4, 2), np.float32)
        tokens[0, 1] = bad if row == 1 else 1
        sample.add(tokens)
    assert np.isfinite(sample.channel_max).tolist() == [True, False]
