"""Statistics of heads are those worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vinedresser.explain.attention import Attention, head_statistics
from vinedresser.explain.attention.cells import averaged

LAST = [[0.0, 0.0, 1.0]] * 3
UNIFORM = [[1 / 3] * 3] * 3
CAUSAL = [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]


def test_three_heads_of_three_tokens() -> None:
    (layer,) = Attention.of({"a": np.array([LAST, UNIFORM, CAUSAL])}).layers
    found = head_statistics(layer, separators={(0, 1), (0, 2)})
    third = -sum(one * math.log(one) for one in (0.2, 0.3, 0.5))
    np.testing.assert_allclose(found.entropy, [0, math.log(3), (math.log(2) + third) / 3])
    np.testing.assert_allclose(found.distance, [1.0, 8 / 9, (0.5 + 0.7) / 3])
    np.testing.assert_allclose(found.confidence, [1, 1 / 3, 2 / 3])
    np.testing.assert_allclose(found.self, [1 / 3, 1 / 3, 2 / 3])
    np.testing.assert_allclose(found.first, [0, 1 / 3, 1.7 / 3])
    np.testing.assert_allclose(found.separator, [1, 2 / 3, 1.3 / 3])
    assert not found.masked.any()


def test_the_maximum_of_the_entropy_is_that_of_the_visible_keys() -> None:
    uniform = np.tril(np.ones((4, 4)))
    uniform /= uniform.sum(1, keepdims=True)
    (layer,) = Attention.of({"a": uniform[None]}).layers
    # The first query sees one key only, and so has no choice.
    np.testing.assert_allclose(head_statistics(layer).relative_entropy, [1.0])


@pytest.mark.parametrize("nothing", [0.0, math.nan])
def test_masked_queries_do_not_count(nothing: float) -> None:
    weights = np.array([CAUSAL, LAST])
    weights[:, 0] = nothing
    (layer,) = Attention.of({"a": weights}).layers
    found = head_statistics(layer)
    np.testing.assert_allclose(found.masked, [1 / 3, 1 / 3])
    np.testing.assert_allclose(found.confidence, [0.5, 1.0])
    np.testing.assert_allclose(found.first, [0.35, 0.0])
    np.testing.assert_array_equal(layer.masked[0, :, 0], [True, True])


def test_cross_attention_has_no_distance() -> None:
    (layer,) = Attention.of({"a": np.full((1, 1, 2, 4), 0.25)}).layers
    found = head_statistics(layer)
    assert np.isnan(found.distance).all()
    assert np.isnan(found.self).all()
    assert np.isnan(found.separator).all()
    np.testing.assert_allclose(found.entropy, [math.log(4)])


def test_averaged_cells_keep_the_weight_of_a_row() -> None:
    generator = np.random.default_rng(0)
    weights = generator.dirichlet(np.ones(10), size=(2, 7))
    weights[0, 5:7] = np.nan
    found = averaged(weights, 3)
    assert found.shape == (2, 3, 3)
    np.testing.assert_allclose(found.sum(2)[:, :2], 1)
    # Queries 0 and 1, keys 3 to 5.
    np.testing.assert_allclose(found[1, 0, 1], weights[1, :2, 3:6].sum(1).mean())
    # Of queries 4 to 6, two are masked.
    np.testing.assert_allclose(found[0, 2, 0], weights[0, 4, :3].sum())
    weights[0, 4] = np.nan
    assert np.isnan(averaged(weights, 3)[0, 2]).all()
