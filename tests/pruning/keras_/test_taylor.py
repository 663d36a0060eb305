"""Taylor terms of Keras models: against finite differences, and against those of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.pruning.keras_.pruning_of import redraw
from tests.pruning.keras_.zoo import keras
from vinedresser.frameworks.keras_.double_precision import double_precision
from vinedresser.pruning import PruningError, prune
from vinedresser.pruning.keras_ import KerasPrunable
from vinedresser.pruning.keras_.backend import KerasBackend
from vinedresser.pruning.keras_.graph import values_of

layers, ops = keras.layers, keras.ops
IMAGES = np.random.default_rng(2).normal(size=(2, 3, 6, 6, 2))
TARGETS = np.random.default_rng(3).normal(size=(2, 3, 3))


def smooth() -> Any:
    """Return a chain of all layers that read channels, smooth and in float64."""
    settings = {"dtype": "float64", "activation": "tanh"}
    model = keras.Sequential(
        [
            keras.Input((6, 6, 2), dtype="float64"),
            layers.Conv2D(4, 3, name="first", **settings),
            layers.BatchNormalization(dtype="float64", name="norm"),
            layers.SeparableConv2D(4, 3, depth_multiplier=2, name="separable", **settings),
            layers.Conv2DTranspose(6, 2, strides=2, name="transposed", **settings),
            layers.DepthwiseConv2D(2, name="own", **settings),
            layers.Conv2D(6, 2, groups=3, name="grouped", **settings),
            layers.Dense(4, name="rows", **settings),
            layers.GlobalAveragePooling2D(dtype="float64"),
            layers.Dense(3, dtype="float64", name="head"),
        ]
    )
    redraw(model, np.random.default_rng(1))
    return model


def losses(model: Any) -> Iterator[Any]:
    dtype = model.inputs[0].dtype
    for images, targets in zip(IMAGES.astype(dtype), TARGETS.astype(dtype), strict=True):
        yield ops.mean(ops.square(ops.subtract(model(images), targets)))


def derivatives(model: Any, variable: Any, axis: int, images: Any, targets: Any) -> Any:
    """Return the derivatives of the loss by a factor on each slice of a variable, float64."""
    values, step, found = np.array(values_of(variable)), 1e-5, []
    for number in range(values.shape[axis]):
        by_side = []
        for factor in (1 + step, 1 - step):
            changed = values.copy()
            np.moveaxis(changed, axis, 0)[number] *= factor
            variable.assign(changed)
            by_side.append(np.square(model.predict_on_batch(images) - targets).mean())
        found.append((by_side[0] - by_side[1]) / (2 * step))
    variable.assign(values)
    return np.array(found)


@pytest.mark.thorough
def test_terms_are_derivatives_by_factors() -> None:
    """A factor on a channel that one layer reads is one on the weights that read it."""
    with double_precision():
        model = smooth()
        prunable = KerasPrunable(model, IMAGES[0])
        variables = {
            f"{layer.name}.{weight.name}": weight
            for layer in model.layers
            for weight in layer.weights
        }
        members = {
            (member.role, member.tensor, member.axis)
            for group in prunable.groups
            for member in group.members
        }
        measured = KerasBackend().measure(
            model, losses, prunable.groups, ["input_taylor", "weight_taylor"]
        )
        readers = {name: axis for role, name, axis in members if role == "input"}
        makers = {name: axis for role, name, axis in members if role == "filter"}
        assert set(measured["input_taylor"]) == set(readers) == {
            "separable.pointwise_kernel", "transposed.kernel", "grouped.kernel", "rows.kernel",
            "head.kernel",
        }  # fmt: skip
        assert set(measured["weight_taylor"]) == set(makers)
        batch = IMAGES[1], TARGETS[1]
        for name, axis in makers.items():
            found = measured["weight_taylor"][name][1]
            expected = derivatives(model, variables[name], axis, *batch)
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
        # Each example alone has a third of its loss in the batch's.
        pixels = {"separable": 4, "transposed": 4, "grouped": 9, "rows": 4, "head": 1}
        for name, axis in readers.items():
            expected = np.stack(
                [
                    derivatives(model, variables[name], axis, image[None], target[None]) / 3
                    for image, target in zip(*batch, strict=True)
                ]
            )
            found = measured["input_taylor"][name][1]
            if name == "grouped.kernel":
                # All groups read with the same weights' axis.
                found = found.reshape(3, 3, -1).sum(axis=1)
            expected = expected / pixels[name.partition(".")[0]]
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


class Twin(nn.Module):
    """The network of `twin`."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 8, 3)
        self.norm = nn.BatchNorm2d(8, eps=1e-3)
        self.own = nn.Conv2d(8, 8, 3, groups=8, bias=False)
        self.second = nn.Conv2d(8, 6, 2)
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.own(torch.relu(self.norm(self.first(x))))
        return self.head(torch.relu(self.second(x)).flatten(1))


def twin() -> tuple[Any, Twin]:
    """Return one network of both frameworks, with the same weights."""
    model = keras.Sequential(
        [
            keras.Input((6, 6, 2)),
            layers.Conv2D(8, 3, name="first"),
            layers.BatchNormalization(name="norm"),
            layers.ReLU(),
            layers.DepthwiseConv2D(3, use_bias=False, name="own"),
            layers.Conv2D(6, 2, activation="relu", name="second"),
            layers.Flatten(),
            layers.Dense(3, name="head"),
        ]
    )
    redraw(model, np.random.default_rng(4))
    other = Twin()
    own = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean",
           "moving_variance": "running_var", "kernel": "weight", "bias": "bias"}  # fmt: skip
    state = {"norm.num_batches_tracked": torch.tensor(0)}
    for layer in model.layers:
        for variable in layer.weights:
            values = torch.tensor(values_of(variable))
            if values.ndim == 4:
                values = values.permute((2, 3, 0, 1) if layer.name == "own" else (3, 2, 0, 1))
            state[f"{layer.name}.{own[variable.name]}"] = values.T if values.ndim == 2 else values
    other.load_state_dict(state)
    return model, other


def losses_of_torch(model: nn.Module) -> Iterator[torch.Tensor]:
    for images, targets in zip(IMAGES, TARGETS, strict=True):
        x = torch.tensor(images, dtype=torch.float32).permute(0, 3, 1, 2)
        yield (model(x) - torch.tensor(targets, dtype=torch.float32)).square().mean()


@pytest.mark.thorough
@pytest.mark.parametrize("criterion", ["taylor_activation", "taylor_signed", "taylor_weight"])
def test_scores_are_those_of_the_same_network_in_pytorch(criterion: str) -> None:
    model, other = twin()
    amounts = {"first": 3, "second": 2}
    example = IMAGES[0].astype("float32")
    found = prune(model, example, amounts, criterion=criterion, losses=losses).plans[0]
    images = torch.tensor(example).permute(0, 3, 1, 2)
    same = prune(other, images, amounts, criterion=criterion, losses=losses_of_torch).plans[0]
    assert found.channels == same.channels
    for name, scores in same.scores.items():
        np.testing.assert_allclose(found.scores[name], scores, rtol=1e-3, atol=1e-6)


@pytest.mark.thorough
def test_filters_by_loss_per_operation_are_those_of_the_same_network_in_pytorch() -> None:
    model, other = twin()
    example = IMAGES[0].astype("float32")
    images = torch.tensor(example).permute(0, 3, 1, 2)
    macs = prune(other, images, 1).before.macs // 2
    found = prune(model, example, macs=macs, losses=losses).plans[0]
    same = prune(other, images, macs=macs, losses=losses_of_torch).plans[0]
    assert found.criterion == same.criterion == "l1, loss per MAC"
    assert found.channels == same.channels
    assert found.channels != prune(model, example, macs=macs).plans[0].channels


@pytest.mark.thorough
def test_the_model_stays_as_it_is_and_frozen_layers_count() -> None:
    model, _ = twin()
    expected = prune(model, IMAGES[0], 4, criterion="taylor_weight", losses=losses)
    model.get_layer("first").trainable = False
    before = model.get_weights()
    attributes = [set(vars(layer)) for layer in model.layers]
    pruned = prune(model, IMAGES[0], 4, criterion="taylor_weight", losses=losses)
    assert pruned.plans[0].scores == expected.plans[0].scores
    assert all(map(np.array_equal, before, model.get_weights()))
    assert [set(vars(layer)) for layer in model.layers] == attributes
    assert not model.get_layer("first").trainable
    if keras.backend.backend() == "torch":
        assert not model.get_layer("first").kernel.value.requires_grad
        assert all(weight.value.grad is None for weight in model.weights)


def nothing(_: Any) -> Iterator[Any]:
    yield from ()


def infinite(model: Any) -> Iterator[Any]:
    yield ops.sum(model(IMAGES[0])) * np.inf


def not_scalar(model: Any) -> Iterator[Any]:
    yield model(IMAGES[0])


def of_something_else(_: Any) -> Iterator[Any]:
    yield ops.convert_to_tensor(2.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (nothing, "^losses: yields nothing"),
        (infinite, "^losses: batch 0: the loss is -?(inf|nan)"),
        (not_scalar, "^losses: batch 0: must be a scalar tensor, not "),
        (lambda _: [1.0], "^losses: batch 0: must be a scalar tensor, not float"),
        (of_something_else, "^losses: batch 0: the loss does not depend on the model's weights"),
    ],
)
def test_losses_that_cannot_be_used_are_refused(given: Callable[[Any], Any], message: str) -> None:
    model, _ = twin()
    with pytest.raises(PruningError, match=message):
        prune(model, IMAGES[0], 2, criterion="taylor_activation", losses=given)


@pytest.mark.thorough
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="PyTorch records always")
def test_what_tensorflow_cannot_record_is_refused() -> None:
    import tensorflow as tf

    model, _ = twin()
    with pytest.raises(PruningError, match="compute each loss when it is asked for, as a gen"):
        prune(model, IMAGES[0], 2, criterion="taylor_weight", losses=lambda one: [*losses(one)])

    def compiled(model: Any) -> Iterator[Any]:
        run = tf.function(model)
        for images in IMAGES.astype("float32"):
            yield ops.mean(run(images))

    with pytest.raises(PruningError, match="no layer was seen to run; call the model outside of"):
        prune(model, IMAGES[0], 2, criterion="taylor_activation", losses=compiled)
    assert prune(model, IMAGES[0], 2, criterion="taylor_weight", losses=compiled).plans[0].count
