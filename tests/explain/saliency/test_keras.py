"""Keras models on TensorFlow are explained as exactly as those of PyTorch."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, get_args

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from tests.explain.saliency.models import classifier, drawn
from tests.pruning.keras_.zoo import ZOO, keras
from vinedresser.explain.saliency import Saliency, SaliencyError, saliency
from vinedresser.explain.saliency.options import Method, Peer, Postprocess

layers = keras.layers
Floats = NDArray[Any]

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="is about TensorFlow"
)


@contextmanager
def precision(dtype: str) -> Iterator[None]:
    """Build Keras layers in a precision."""
    before = keras.config.floatx()
    keras.config.set_floatx(dtype)
    keras.config.set_dtype_policy(dtype)
    try:
        yield
    finally:
        keras.config.set_floatx(before)
        keras.config.set_dtype_policy(before)


def redrawn(model: Any) -> Any:
    """Return a model with random weights and statistics, none of them zero."""
    rng = np.random.default_rng(0)
    for variable in model.variables:
        if "float" in str(variable.dtype):
            spread = rng.uniform(0.5, 2, variable.shape)
            variance = variable.path.endswith("variance")
            variable.assign(spread if variance else 0.3 * rng.standard_normal(variable.shape))
    return model


def images(dtype: str = "float64", size: int = 12) -> Floats:
    return np.random.default_rng(1).standard_normal((3, size, size, 3)).astype(dtype)


PRECISIONS = {"float32": 1e-5, "float64": 1e-12}


def check(make: Callable[[], Any], inputs: Floats, *precisions: str) -> Saliency:
    """Check that an explanation is complete in some precisions, or in all."""
    for dtype in precisions or PRECISIONS:
        with precision(dtype):
            model = redrawn(make())
        x = inputs.astype(dtype) if inputs.dtype.kind == "f" else inputs
        result = saliency(model, x)
        assert result.tolerance == PRECISIONS[dtype]
        assert result.complete, str(result)
        assert result.uncovered == ()
        expected = keras.ops.convert_to_numpy(model(x, training=False)).max(1)
        np.testing.assert_allclose(result.outputs, expected, rtol=1e-5)
    return result


def branches() -> Any:
    """Return a model with the layers that other models of these tests do not have."""
    inputs = keras.Input((12, 12, 3))
    x = layers.SeparableConv2D(8, 3, activation="gelu")(inputs)
    x = layers.Conv2DTranspose(4, 3, strides=2, activation="silu")(x)
    x = layers.GroupNormalization(2)(layers.MaxPooling2D(2)(x))
    x = layers.Reshape((-1, 4))(x)
    x = layers.LayerNormalization()(x)
    x = layers.MultiHeadAttention(2, 4)(x, x) + layers.Activation("hard_swish")(x)
    x = layers.Dense(6, activation="elu")(x)
    return keras.Model(inputs, layers.Dense(4)(layers.GlobalAveragePooling1D()(x)))


@pytest.mark.thorough
def test_layers_of_many_operators() -> None:
    result = check(branches, images())
    assert result.map is not None
    assert result.map.shape == (3, 12, 12)
    assert "multi_head_attention" in {
        term.layer.partition("/")[0].rstrip("_0123456789") for term in result.bias_terms.values()
    }


# Those with one input that return [batch, outputs].
ARCHITECTURES = (
    "plain", "vgg", "resnet", "densenet", "squeeze_excite", "inception", "nested", "reshapes",
    "text",
)  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.slow)])
def test_architectures(name: str, dtype: str) -> None:
    model = ZOO[name]()
    shape = [3, *model.inputs[0].shape[1:]]
    drawing = np.random.default_rng(1)
    integers = model.inputs[0].dtype.startswith("int")
    inputs = drawing.integers(0, 10, shape) if integers else drawing.normal(size=shape)
    check(ZOO[name], inputs, dtype)


def norms() -> Any:
    """Return layers whose only implicit biases are their own."""
    inner = keras.Sequential([layers.Dense(6), layers.BatchNormalization(), layers.ReLU()])
    return keras.Sequential(
        [
            keras.Input((12, 12, 3)), layers.Conv2D(6, 3, activation="relu"),
            layers.BatchNormalization(), layers.DepthwiseConv2D(3), layers.LeakyReLU(0.2),
            layers.SeparableConv2D(4, 3), layers.Conv2DTranspose(5, 3), layers.ReLU(), inner,
            layers.AveragePooling2D(2), layers.Flatten(), layers.Dense(4),
        ]
    )  # fmt: skip


@pytest.mark.thorough
def test_bias_terms_equal_variables_times_their_gradients() -> None:
    import tensorflow as tf

    with precision("float64"):
        model = redrawn(norms())
    x = images()[:1]
    result = saliency(model, x, 2)

    expected: dict[str, float] = {}
    leaves = [
        flatten_layer
        for flatten_layer in model._flatten_layers()
        if not isinstance(flatten_layer, keras.Model)
    ]
    pairs = [
        (layer.name, variable)
        for layer in leaves
        for variable in layer.variables
        if variable.path.rpartition("/")[2] in ("bias", "beta", "moving_mean")
    ]
    with tf.GradientTape() as tape:
        tape.watch([variable.value for _, variable in pairs])
        output = model(x, training=False)[0, 2]
    gradients = tape.gradient(output, [variable.value for _, variable in pairs])
    for (name, variable), gradient in zip(pairs, gradients, strict=True):
        part = float(tf.reduce_sum(variable.value * gradient))
        expected[name] = expected.get(name, 0) + part
    found = {term.layer.rpartition("/")[2]: term.sums[0] for term in result.bias_terms.values()}
    assert found == pytest.approx(expected, rel=1e-6)


def twins() -> tuple[Any, nn.Module]:
    """Return a Keras model and a PyTorch model that compute the same."""
    pytorch = drawn(
        nn.Sequential(
            nn.Conv2d(3, 6, 3, 2), nn.BatchNorm2d(6, eps=1e-3), nn.ReLU6(), nn.MaxPool2d(2),
            nn.Conv2d(6, 4, 2), nn.GELU(), classifier(4),
        )
    ).eval()  # fmt: skip
    with precision("float64"):
        model = keras.Sequential(
            [
                keras.Input((15, 20, 3)), layers.Conv2D(6, 3, 2),
                layers.BatchNormalization(epsilon=1e-3), layers.ReLU(max_value=6),
                layers.MaxPooling2D(2), layers.Conv2D(4, 2), layers.Activation("gelu"),
                layers.GlobalAveragePooling2D(), layers.Dense(5),
            ]
        )  # fmt: skip
    state = [one.numpy() for name, one in pytorch.state_dict().items() if "tracked" not in name]
    turned = {4: (2, 3, 1, 0), 2: (1, 0)}
    model.set_weights([one.transpose(turned[one.ndim]) if one.ndim > 1 else one for one in state])
    return model, pytorch


METHODS = sorted({*get_args(Method)} - {*get_args(Peer)})


@pytest.mark.parametrize(
    ("method", "postprocess"),
    [
        ("fullgrad", "rescale"),
        *(pytest.param(one, "rescale", marks=pytest.mark.thorough) for one in METHODS),
        *(pytest.param("fullgrad", one, marks=pytest.mark.thorough) for one in ("abs", "none")),
    ],
)
def test_maps_equal_those_of_pytorch(method: Method, postprocess: Postprocess) -> None:
    model, pytorch = twins()
    x = 20 * np.random.default_rng(2).standard_normal((2, 15, 20, 3))
    turned = torch.from_numpy(np.moveaxis(x, -1, 1).copy())
    found = saliency(model, x, [4, 1], method=method, postprocess=postprocess)
    expected = saliency(pytorch, turned, [4, 1], method=method, postprocess=postprocess)
    assert found.map is not None
    assert expected.map is not None
    scale = float(abs(expected.map).max())
    np.testing.assert_allclose(found.map, expected.map, atol=1e-5 * scale)
    # TensorFlow's GELU has constants in float32.
    terms = np.moveaxis(found.input_term, -1, 1)
    np.testing.assert_allclose(terms, expected.input_term, atol=1e-8)
    for one, other in zip(found.bias_terms.values(), expected.bias_terms.values(), strict=True):
        np.testing.assert_allclose(one.sums, other.sums, atol=1e-7)


@pytest.mark.thorough
def test_the_map_of_an_image_does_not_depend_on_its_batch() -> None:
    model, x = redrawn(norms()), images("float32")
    before = model.get_weights()
    together = saliency(model, x, 1).map
    assert together is not None
    for place in range(3):
        alone = saliency(model, x[place : place + 1], 1).map
        assert alone is not None
        np.testing.assert_allclose(together[place], alone[0], rtol=1e-4, atol=1e-5)
    assert all(map(np.array_equal, before, model.get_weights()))


@pytest.mark.thorough
def test_tokens() -> None:
    def reader() -> Any:
        inputs = keras.Input((7,), dtype="int64")
        x = layers.LayerNormalization()(layers.Embedding(20, 8)(inputs))
        x = x + layers.MultiHeadAttention(2, 4)(x, x)
        return keras.Model(inputs, layers.Dense(3)(x[:, 0]))

    result = check(reader, np.random.default_rng(0).integers(0, 20, (3, 7)))
    assert result.map is not None
    assert result.map.shape == (3, 7)
    assert result.attributions is not None
    assert result.attributions.shape == (3, 7)
    np.testing.assert_allclose(
        result.attributions.sum(1) + result.unattributed, result.outputs, rtol=1e-9
    )


@pytest.mark.thorough
def test_a_loop_is_named() -> None:
    model = keras.Sequential([keras.Input((5, 4)), layers.GRU(6, name="gru"), layers.Dense(3)])
    result = saliency(redrawn(model), images("float32")[:, 0, :5, :1].repeat(4, 2))
    assert not result.complete
    assert all(one.endswith("in gru") for one in result.uncovered)
    assert "While in gru" in result.uncovered


DENSE = [keras.Input((4,)), layers.Dense(3)]
ROWS = np.ones((2, 4), np.float32)


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        ([[1.0]], {}, "inputs are list; they must be an array"),
        (ROWS.astype(np.float16), {}, "inputs are float16; they must be float32 or float64"),
        (ROWS[0], {}, r"inputs have the shape \[4\]; they must be"),
        (ROWS * np.nan, {}, r"inputs\[0\] contains NaN or infinity"),
        (ROWS, {"targets": 3}, "targets must be between 0 and 2"),
        (ROWS, {"method": "grad_cam"}, "is available for PyTorch models only"),
        (np.ones((2, 3, 4), np.int64), {}, "token ids must be"),
    ],
)
def test_bad_input_is_named(inputs: Any, options: Any, message: str) -> None:
    with pytest.raises(SaliencyError, match=message):
        saliency(keras.Sequential(DENSE), inputs, **options)


def test_a_model_without_weights_is_refused() -> None:
    with pytest.raises(SaliencyError, match="has no weights yet"):
        saliency(keras.Sequential([layers.Dense(3)]), ROWS)


ON_TORCH = """
import keras, numpy as np, torch
from vinedresser.explain.saliency import saliency
layers = keras.layers
keras.utils.set_random_seed(0)
inputs = keras.Input((12, 10, 3))
x = layers.BatchNormalization()(layers.Conv2D(6, 3, activation="gelu")(inputs))
x = layers.SeparableConv2D(4, 3, activation="relu6")(layers.MaxPooling2D(2)(x))
model = keras.Model(inputs, layers.Dense(3)(layers.GlobalAveragePooling2D()(x)))
x = torch.randn(2, 12, 10, 3)
together = saliency(model, x, 1)
assert together.complete, together
assert together.map.shape == (2, 12, 10)
alone = saliency(model, x[:1], 1)
np.testing.assert_allclose(together.map[0], alone.map[0], rtol=1e-4, atol=1e-5)
captum = saliency(model, x, 1, method="smoothgrad")
assert captum.map.shape == (2, 12, 10)
"""


@pytest.mark.slow
def test_keras_on_pytorch() -> None:
    environment = {**os.environ, "KERAS_BACKEND": "torch"}
    command = [sys.executable, "-c", ON_TORCH]
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
