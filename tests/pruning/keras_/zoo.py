"""Keras architectures for pruning, each as small as its kind allows."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

# Whether these tests or others import Keras first, it has the same backend.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
from keras import layers, ops

__all__ = ["ZOO", "channels_first", "keras"]


def _norm_relu(x: Any) -> Any:
    return layers.ReLU()(layers.BatchNormalization()(x))


def _conv(x: Any, filters: int, size: int = 3, **settings: Any) -> Any:
    x = layers.Conv2D(filters, size, padding="same", use_bias=False, **settings)(x)
    return _norm_relu(x)


def _image() -> Any:
    return keras.Input((12, 12, 3))


def plain() -> Any:
    return keras.Sequential(
        [
            keras.Input((12, 12, 3)),
            layers.Rescaling(2.0),
            layers.Conv2D(8, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Dropout(0.2),
            layers.Conv2D(12, 3, activation=keras.activations.gelu),
            layers.Flatten(),
            layers.Dense(16, activation="relu"),
            layers.Dense(5, activation="softmax"),
        ]
    )


def vgg() -> Any:
    inputs = x = _image()
    for width in (8, 12, 16):
        x = layers.MaxPooling2D()(_conv(_conv(x, width), width))
    x = layers.Dense(20, activation="relu")(layers.Flatten()(x))
    return keras.Model(inputs, layers.Dense(4)(x))


def resnet() -> Any:
    inputs = _image()
    x = _conv(inputs, 8)
    for width, stride in ((8, 1), (16, 2), (16, 1)):
        short = x
        if stride > 1:
            short = layers.BatchNormalization()(layers.Conv2D(width, 1, strides=stride)(x))
        y = _conv(x, width, strides=stride)
        y = layers.BatchNormalization()(layers.Conv2D(width, 3, padding="same")(y))
        x = layers.ReLU()(layers.Add()([y, short]))
    return keras.Model(inputs, layers.Dense(4)(layers.GlobalAveragePooling2D()(x)))


def densenet() -> Any:
    inputs = _image()
    x = layers.Conv2D(6, 3, padding="same")(inputs)
    for _ in range(2):
        for _ in range(2):
            y = layers.Conv2D(4, 3, padding="same")(_norm_relu(x))
            x = layers.Concatenate()([x, y])
        x = layers.AveragePooling2D(2)(layers.Conv2D(8, 1)(_norm_relu(x)))
    return keras.Model(inputs, layers.Dense(4)(layers.GlobalMaxPooling2D()(x)))


def mobilenet() -> Any:
    inputs = _image()
    x = _conv(inputs, 8, strides=2)
    x = _norm_relu(layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2)(x))
    x = _conv(x, 12, 1)
    y = _norm_relu(layers.Conv2D(24, 3, padding="same", groups=12)(x))
    x = layers.Add()([x, layers.Conv2D(12, 1)(y)])
    x = layers.SeparableConv2D(14, 3, depth_multiplier=2)(x)
    return keras.Model(inputs, layers.Dense(4)(layers.GlobalAveragePooling2D(keepdims=True)(x)))


def squeeze_excite() -> Any:
    inputs = _image()
    x = _conv(inputs, 12)
    scale = layers.GlobalAveragePooling2D()(x)
    scale = layers.Dense(6, activation="swish")(scale)
    scale = layers.Reshape((1, 1, 12))(layers.Dense(12, activation="sigmoid")(scale))
    x = layers.Multiply()([x, scale])
    space = layers.Conv2D(1, 3, padding="same", activation="sigmoid")(x)
    x = layers.Multiply()([_conv(x, 8), space])
    return keras.Model(inputs, layers.Dense(4)(ops.mean(x, axis=(1, 2))))


def unet() -> Any:
    inputs = _image()
    top = _conv(inputs, 6)
    middle = _conv(layers.MaxPooling2D()(top), 8)
    x = _conv(layers.MaxPooling2D()(middle), 10)
    x = layers.Conv2DTranspose(8, 2, strides=2)(x)
    x = _conv(layers.Concatenate()([x, middle]), 8)
    x = layers.UpSampling2D()(x)
    x = layers.Concatenate()([layers.Cropping2D(1)(layers.ZeroPadding2D(1)(x)), top])
    return keras.Model(inputs, layers.Conv2D(2, 1)(_conv(x, 6)))


def inception() -> Any:
    inputs = _image()
    x = _conv(inputs, 8)
    parts = [_conv(x, 4, 1), _conv(x, 6), _conv(layers.MaxPooling2D(3, 1, "same")(x), 4, 1)]
    x = ops.concatenate(parts, axis=-1)
    x = layers.PReLU(shared_axes=[1, 2])(layers.GroupNormalization(2)(_conv(x, 8)))
    x = layers.Permute((3, 1, 2))(x)
    return keras.Model(inputs, layers.Dense(4)(layers.Flatten()(x)))


def two_inputs_two_outputs() -> Any:
    image = keras.Input((12, 12, 3), name="image")
    values = keras.Input((7,), name="values")
    x = layers.Flatten()(layers.Conv2D(6, 3, strides=3)(image))
    y = layers.LayerNormalization()(layers.Dense(10, activation="relu")(values))
    z = layers.Dense(12, activation="relu")(layers.Concatenate()([x, y]))
    outputs = {"one": layers.Dense(3)(z), "two": layers.Dense(2)(layers.Concatenate()([z, y]))}
    return keras.Model({"image": image, "values": values}, outputs)


def nested() -> Any:
    inner_inputs = keras.Input((12, 12, 8))
    y = _conv(inner_inputs, 8)
    inner = keras.Model(inner_inputs, layers.Add()([y, inner_inputs]), name="block")
    head = keras.Sequential([layers.Flatten(), layers.Dense(10, activation="relu")], name="head")
    inputs = _image()
    x = inner(inner(_conv(inputs, 8)))
    return keras.Model(inputs, layers.Dense(3)(head(layers.MaxPooling2D(3)(x))))


def shared_layers() -> Any:
    first, second = keras.Input((12, 12, 3)), keras.Input((12, 12, 3))
    conv, norm = layers.Conv2D(8, 3), layers.BatchNormalization()
    again, last = layers.Conv2D(8, 3, padding="same"), layers.Conv2D(8, 3, strides=2)
    parts = [last(again(again(norm(conv(one))))) for one in (first, second)]
    difference = ops.abs(ops.subtract(*parts))
    return keras.Model([first, second], layers.Dense(1)(layers.Flatten()(difference)))


def reshapes() -> Any:
    inputs = keras.Input((9,))
    x = layers.Reshape((4, 4, 6))(layers.Dense(96, activation="relu")(inputs))
    x = layers.Conv2DTranspose(8, 3, strides=2, padding="same")(x)
    x = ops.reshape(x, (-1, 64, 8))
    x = layers.Conv1D(12, 3)(ops.transpose(ops.transpose(x, (0, 2, 1)), (0, 2, 1)))
    low, high = ops.split(x, 2, axis=-1)
    x = ops.concatenate([low * 2.0, high, x[..., 1:]], axis=-1)
    return keras.Model(inputs, layers.Dense(3)(layers.Flatten()(x)))


def text() -> Any:
    inputs = keras.Input((10,), dtype="int32")
    x = layers.Embedding(20, 8)(inputs)
    x = layers.Conv1D(12, 3, padding="same", activation="relu")(x)
    y = layers.LayerNormalization()(x)
    y = layers.Dense(12)(layers.Dense(24, activation="gelu")(y))
    x = layers.RMSNormalization()(layers.Add()([x, y]))
    # A mixing of positions: its units are no channels.
    y = layers.Permute((2, 1))(layers.Dense(10)(layers.Permute((2, 1))(x)))
    x = layers.Add()([x, y])
    return keras.Model(inputs, layers.Dense(4)(layers.GlobalAveragePooling1D()(x)))


def channels_first() -> Any:
    """Return a residual network with its channels before space; not every backend runs it."""
    first = "channels_first"
    inputs = keras.Input((3, 10, 8))
    x = layers.Conv2D(8, 3, padding="same", data_format=first)(inputs)
    y = layers.Conv2D(8, 3, padding="same", data_format=first, activation="relu")(x)
    y = layers.BatchNormalization(axis=1)(y)
    x = layers.Add()([x, y])
    x = layers.DepthwiseConv2D(3, data_format=first)(x)
    x = layers.MaxPooling2D(2, data_format=first)(x)
    z = layers.Conv2DTranspose(6, 3, padding="same", data_format=first)(x)
    x = layers.PReLU(shared_axes=[2, 3])(layers.Concatenate(axis=1)([x, z]))
    x = layers.SeparableConv2D(8, 3, padding="same", data_format=first)(x)
    x = layers.GroupNormalization(2, axis=1)(x)
    z = layers.Dense(8)(layers.GlobalAveragePooling2D(data_format=first)(x))
    x = layers.Multiply()([x, layers.Reshape((8, 1, 1))(z)])
    x = layers.Flatten(data_format=first)(layers.UpSampling2D(2, data_format=first)(x))
    return keras.Model(inputs, layers.Dense(3)(x))


_ALL = (
    plain, vgg, resnet, densenet, mobilenet, squeeze_excite, unet, inception,
    two_inputs_two_outputs, nested, shared_layers, reshapes, text,
)  # fmt: skip
ZOO: Mapping[str, Callable[[], Any]] = MappingProxyType({one.__name__: one for one in _ALL})
"""Function that builds each architecture, by name."""
