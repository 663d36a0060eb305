"""Functional networks drawn at random."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.pruning.keras_.zoo import keras

__all__ = ["draw_network"]

layers, ops = keras.layers, keras.ops
_ACTIVATIONS = ("relu", "gelu", "tanh", "silu", None)


@keras.saving.register_keras_serializable(package="drawn")
class _Reversed(keras.layers.Layer):  # type: ignore[misc]
    """A layer of the user's own, which no rule describes."""

    def call(self, inputs: Any) -> Any:
        return ops.flip(inputs, axis=-1)


class _Drawing:
    """A network that grows.

    Args:
        seed: seed of all choices.
        odd: whether it has an operation that no rule describes, or that mixes channels.
    """

    def __init__(self, seed: int, *, odd: bool) -> None:
        self.rng = np.random.default_rng(seed)
        self.odd = odd
        self.filters = (4, 6, 8, 12)

    def pick(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def width(self) -> int:
        return int(self.pick(self.filters))

    def conv(self, x: Any) -> Any:
        groups = self.pick([1, 1, 1, 2]) if x.shape[-1] % 2 == 0 else 1
        width = self.width()
        return layers.Conv2D(
            width, self.pick([1, 3]), padding="same", groups=groups,
            use_bias=bool(self.rng.integers(2)), activation=self.pick(_ACTIVATIONS),
        )(x)  # fmt: skip

    def own_filters(self, x: Any) -> Any:
        size = x.shape[-1]
        if self.rng.integers(2):
            return layers.Conv2D(2 * size, 3, padding="same", groups=size)(x)
        return layers.DepthwiseConv2D(3, padding="same", depth_multiplier=self.pick([1, 2]))(x)

    def other_conv(self, x: Any) -> Any:
        if self.rng.integers(2):
            return layers.SeparableConv2D(
                self.width(), 3, padding="same", depth_multiplier=self.pick([1, 2])
            )(x)
        return layers.Conv2DTranspose(self.width(), 3, padding="same", activation="relu")(x)

    def norm(self, x: Any) -> Any:
        size = x.shape[-1]
        groups = self.pick([one for one in (1, 2, 3, size) if size % one == 0])
        kinds = [
            layers.BatchNormalization(),
            layers.BatchNormalization(scale=False),
            layers.LayerNormalization(),
            layers.RMSNormalization(),
            layers.GroupNormalization(groups),
        ]
        return self.pick(kinds)(x)

    def pointwise(self, x: Any) -> Any:
        kinds = [
            layers.ReLU(), layers.LeakyReLU(), layers.PReLU(), layers.PReLU(shared_axes=[1, 2]),
            layers.Dropout(0.3), layers.Rescaling(0.5, 0.1), layers.Activation("silu"),
            ops.tanh, lambda y: y * 2.0 + 1.0,
        ]  # fmt: skip
        return self.pick(kinds)(x)

    def space(self, x: Any) -> Any:
        kinds = [
            layers.MaxPooling2D(3, 1, "same"), layers.AveragePooling2D(2, 1, "same"),
            lambda y: layers.Cropping2D(1)(layers.ZeroPadding2D(1)(y)),
            lambda y: layers.UpSampling2D()(layers.MaxPooling2D()(y)),
        ]  # fmt: skip
        return self.pick(kinds)(x)

    def residual(self, x: Any) -> Any:
        y = layers.Conv2D(x.shape[-1], 3, padding="same")(self.conv(x))
        merge = self.pick([layers.Add(), layers.Average(), layers.Maximum(), layers.Subtract()])
        return self.pick([merge([y, x]), ops.add(x, y), merge([y, x])])

    def branches(self, x: Any) -> Any:
        parts = [self.pick([self.conv, self.space, self.norm, self.pointwise])(x) for _ in "ab"]
        if self.rng.integers(2):
            return layers.Concatenate()([x, *parts])
        return ops.concatenate(parts, axis=-1)

    def squeeze_excite(self, x: Any) -> Any:
        size = x.shape[-1]
        y = layers.GlobalAveragePooling2D()(x)
        y = layers.Dense(size, activation="sigmoid")(layers.Dense(self.width(), "relu")(y))
        return layers.Multiply()([x, layers.Reshape((1, 1, size))(y)])

    def split(self, x: Any) -> Any:
        size = x.shape[-1]
        if size % 2:
            return ops.concatenate([x[..., 1:], x], axis=-1)
        low, high = ops.split(x, 2, axis=-1)
        return self.pick(
            [
                lambda: ops.concatenate([self.conv(low), high], axis=-1),
                lambda: ops.add(self.pointwise(low), high),
                lambda: ops.concatenate([x[:, :, :, : size // 2], low], axis=-1),
            ]
        )()

    def shuffle(self, x: Any) -> Any:
        height, width, size = x.shape[1:]
        if size % 2:
            return x
        y = layers.Reshape((height, width, 2, size // 2))(x)
        return layers.Reshape((height, width, size))(layers.Permute((1, 2, 4, 3))(y))

    def shared(self, x: Any) -> Any:
        layer = layers.Conv2D(x.shape[-1], 3, padding="same")
        y = layer(self.pointwise(layer(x)))
        return self.pick([y, layers.Add()([x, y])])

    def nested(self, x: Any) -> Any:
        inputs = keras.Input(x.shape[1:])
        inner = keras.Model(inputs, self.pick([self.residual, self.norm, self.shuffle])(inputs))
        return self.pick([lambda: inner(x), lambda: inner(inner(x))])()

    def attend_space(self, x: Any) -> Any:
        return layers.Multiply()([x, layers.Conv2D(1, 3, padding="same", activation="sigmoid")(x)])

    def tokens(self, x: Any) -> Any:
        height, width, size = x.shape[1:]
        y = ops.reshape(x, (-1, height * width, size))
        y = layers.Permute((2, 1))(layers.Dense(height * width)(layers.Permute((2, 1))(y)))
        return layers.Reshape((height, width, size))(layers.Dense(size)(y))

    def odd_one(self, x: Any) -> Any:
        size = x.shape[-1]
        kinds: list[Callable[[], Any]] = [
            lambda: _Reversed()(x),
            lambda: layers.Softmax()(x),
            lambda: layers.UnitNormalization()(x),
            lambda: x * ops.sum(x, axis=-1, keepdims=True),
            lambda: x + np.linspace(0, 1, size, dtype="float32"),
            lambda: layers.Lambda(lambda y: y * 2)(x),
            lambda: layers.TimeDistributed(layers.Dense(5))(x),
            lambda: ops.cumsum(x, axis=-1),
            lambda: layers.MultiHeadAttention(2, 3)(x, x),
            lambda: x[..., ::2],
        ]
        return self.pick(kinds)()

    def body(self, x: Any) -> Any:
        blocks = [
            self.conv, self.conv, self.conv, self.norm, self.norm, self.pointwise, self.pointwise,
            self.own_filters, self.other_conv, self.space, self.residual, self.residual,
            self.branches, self.branches, self.squeeze_excite, self.split, self.shuffle,
            self.shared, self.nested, self.attend_space, self.tokens,
        ]  # fmt: skip
        count = int(self.rng.integers(3, 9))
        place = int(self.rng.integers(count))
        for number in range(count):
            x = self.pick(blocks)(x)
            if x.shape[-1] > 24:
                x = layers.Conv2D(self.width(), 1)(x)
            if self.odd and number == place:
                x = self.odd_one(x)
        return x

    def head(self, x: Any) -> Any:
        kinds: list[Callable[[], Any]] = [
            lambda: layers.Flatten()(x),
            lambda: layers.GlobalAveragePooling2D()(x),
            lambda: ops.max(x, axis=[1, 2]),
            lambda: layers.Dense(self.width(), activation="relu")(layers.Flatten()(x)),
        ]
        return layers.Dense(3, activation=self.pick(["softmax", None]))(self.pick(kinds)())


def draw_network(seed: int, *, odd: bool = False) -> Any:
    """Return a Functional model for images of 6 x 6 pixels.

    Args:
        seed: seed of its architecture.
        odd: whether one operation in it has no rule, or mixes channels.
    """
    drawing = _Drawing(seed, odd=odd)
    inputs = keras.Input((6, 6, 3))
    x = layers.Conv2D(drawing.width(), 3, padding="same")(inputs)
    x = drawing.body(x)
    if drawing.rng.integers(4) == 0:
        other = keras.Input((6, 6, 2))
        y = layers.Conv2D(x.shape[-1], 3, padding="same")(other)
        return keras.Model([inputs, other], drawing.head(layers.Add()([x, y])))
    heads = [drawing.head(x) for _ in range(int(drawing.pick([1, 1, 2])))]
    return keras.Model(inputs, heads if len(heads) > 1 else heads[0])
