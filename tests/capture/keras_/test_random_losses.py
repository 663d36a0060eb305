"""Random losses of elementary operations tell exactly what they compare, or nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.capture.keras_ import zoo  # noqa: F401 (selects the backend)

import tensorflow as tf  # isort: skip
from vinedresser.capture.keras_.backends.tensorflow_operations import TensorFlowOperations
from vinedresser.capture.keras_.observation.written_losses import written_loss
from vinedresser.capture.shield import Shield

_ROWS = 6
_RNG = np.random.default_rng(0)
_DATA = _RNG.normal(size=(3, _ROWS, 3)).astype("float32")
_WEIGHTS = _RNG.normal(size=(3, 3)).astype("float32")
# What changes the shape of the predictions and of the labels, and what changes predictions only.
_SHAPES: list[Callable[[Any], Any]] = [
    lambda one: one,
    lambda one: one[:, 1:],
    lambda one: tf.squeeze(one[:, :1], -1),
    lambda one: tf.reshape(one, (_ROWS, 3, 1)),
]
_PURE: list[Callable[[Any], Any]] = [
    lambda one: one,
    tf.sigmoid,
    lambda one: 2.0 * one - 1.0,
    lambda one: tf.exp(tf.clip_by_value(one, -1.0, 1.0)),
    tf.cumsum,
]
_ERRORS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: tf.square(a - b),
    lambda a, b: (b - a) ** 2,
    lambda a, b: tf.abs(a - b),
    tf.math.squared_difference,
    lambda a, b: (d := a - b) * d,
]
_REDUCTIONS: list[Callable[[Any], Any]] = [
    tf.reduce_mean,
    tf.reduce_sum,
    lambda one: tf.reduce_mean(tf.reduce_sum(tf.reshape(one, (_ROWS, -1)), 1)),
    lambda one: tf.sqrt(tf.reduce_mean(one)),
    lambda one: tf.reduce_sum(one) / tf.cast(tf.shape(one)[0], tf.float32),
]


class _Expression:
    """A random loss of an output [6, 3], with what it compares by its construction.

    Attributes:
        loss: the loss [].
        expected: labels and predictions; None if they are uncertain.
        negative: whether the error is subtracted.
    """

    def __init__(self, seed: int, output: Any, *, data: list[Any], weights: Any) -> None:
        choose = random.Random(seed)
        shape = choose.choice(_SHAPES)
        predictions = choose.choice(_PURE)(shape(choose.choice(_PURE)(output)))
        labels = tf.identity(0.5 * shape(data[0]) if choose.random() < 0.5 else shape(data[0]))
        certain = silent = False
        if choose.random() < 0.6:
            certain = True
        else:
            labels, predictions, silent = choose.choice(
                [
                    (labels + tf.reduce_mean(output), predictions, False),
                    (labels * shape(output), predictions, False),
                    (shape(tf.matmul(data[0], weights)), predictions, False),
                    (tf.ones_like(labels), predictions, True),
                    (labels, predictions * shape(data[1]), False),
                    (labels, predictions + shape(tf.matmul(data[1], weights)), False),
                    (labels, shape(data[2]), True),
                ]
            )
        pair = [labels, predictions]
        choose.shuffle(pair)
        factor = choose.choice([1.0, 0.5, -2.0])
        self.loss = factor * choose.choice(_REDUCTIONS)(choose.choice(_ERRORS)(*pair))
        self.expected = (labels, predictions) if certain else None
        self.negative = factor < 0
        if choose.random() < 0.5:
            self._add(choose, output, data=data, weights=weights, silent=silent)

    def _add(
        self, choose: random.Random, output: Any, *, data: list[Any], weights: Any, silent: bool
    ) -> None:
        """Add another term to the loss.

        Args:
            choose: see above.
            output: the output.
            data: data of the shape of the output.
            weights: trained weights.
            silent: whether the first term is nothing but a penalty or a number.
        """
        terms = [
            tf.reduce_mean(output**2),
            tf.nn.l2_loss(weights),
            tf.reduce_mean(output * data[1]),
            tf.reduce_mean(tf.square(output - data[2])),
        ]
        number = choose.randrange(len(terms))
        if number == 2:
            self.expected = None
        elif number == 3:
            self.expected = (data[2], output) if silent else None
            self.negative = False
        self.loss = 0.1 * terms[number] + self.loss


def found_in_graph(seed: int) -> tuple[_Expression, Any]:
    with tf.Graph().as_default():
        data = [tf.compat.v1.placeholder(tf.float32, (_ROWS, 3)) for _ in _DATA]
        weights = tf.compat.v1.get_variable("weights", (3, 3), use_resource=True).read_value()
        output = tf.matmul(data[1], weights) + 0.5
        one = _Expression(seed, output, data=data, weights=weights)
        return one, written_loss(one.loss, [output], TensorFlowOperations(Shield()))


def found_line_by_line(seed: int) -> tuple[_Expression, Any]:
    shield = Shield()
    weights, operations = tf.Variable(_WEIGHTS), TensorFlowOperations(shield)
    data = [tf.constant(one) for one in _DATA]
    with tf.GradientTape():
        output = tf.matmul(data[1], weights) + 0.5
        operations.begin()
        one = _Expression(seed, output, data=data, weights=weights)
    operations.end()
    assert not shield.problems
    return one, written_loss(one.loss, [output], operations)


@pytest.mark.thorough
@pytest.mark.parametrize("find", [found_in_graph, found_line_by_line])
def test_random_losses(find: Callable[[int], tuple[_Expression, Any]]) -> None:
    certain = 0
    for seed in range(60):
        one, found = find(seed)
        if one.expected is None:
            assert found is None, seed
            continue
        certain += 1
        assert found is not None, seed
        labels, predictions = one.expected
        assert found.comparison.labels is labels, seed
        assert found.comparison.predictions is predictions, seed
        assert found.negated == one.negative, seed
    assert certain > 10
