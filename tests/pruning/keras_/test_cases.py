"""Cases in which it is easy to prune wrongly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.pruning.keras_.pruning_of import drawn_example, random_plan, redraw
from tests.pruning.keras_.zoo import keras
from vinedresser.errors import PruningError
from vinedresser.pruning import prune
from vinedresser.pruning.group import Group
from vinedresser.pruning.keras_ import KerasPrunable
from vinedresser.pruning.plan import plan_from_json
from vinedresser.pruning.proof import prove, relative_difference

layers, ops = keras.layers, keras.ops


def groups_of(model: Any) -> dict[str, Group]:
    prunable = KerasPrunable(model, drawn_example(model, np.random.default_rng(0)))
    return {group.name: group for group in prunable.groups}


def after(*steps: Any, head: bool = True) -> Any:
    """Return a model with a convolution of 8 filters, then steps, then a head."""
    inputs = keras.Input((6, 6, 3))
    x = layers.Conv2D(8, 3, padding="same", name="first")(inputs)
    for step in steps:
        x = step(x)
    if head:
        x = layers.Dense(2, name="head")(layers.GlobalAveragePooling2D()(x))
    return keras.Model(inputs, x)


@keras.saving.register_keras_serializable(package="cases")
class Twice(keras.layers.Layer):  # type: ignore[misc]
    def call(self, inputs: Any) -> Any:
        return inputs * 2


@keras.saving.register_keras_serializable(package="cases")
class TrainingBranch(keras.layers.Layer):  # type: ignore[misc]
    """Uses a layer in training mode only, and maybe fails there."""

    def __init__(self, fails: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.fails = fails
        self.inner = layers.Dense(8, name="inner")

    def build(self, shape: Any) -> None:
        self.inner.build(shape)

    def call(self, inputs: Any, training: bool = False) -> Any:
        if training and self.fails:
            raise ValueError("only for predictions")
        return inputs + self.inner(inputs) if training else inputs

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "fails": self.fails}


@pytest.mark.thorough
def test_a_layer_for_training_keeps_what_it_reads() -> None:
    second = layers.Conv2D(8, 3, padding="same", name="second")
    model = after(layers.Dropout(0.5), second, TrainingBranch(name="branch"))
    before = [np.array(weight) for weight in model.get_weights()]
    example = np.ones((2, 6, 6, 3), "float32")
    pruned = prune(model, example, 4)
    assert pruned.plans[0].channels.keys() == {"first"}
    assert "branch (TrainingBranch)" in pruned.locked["second"]
    assert pruned.notes == ()
    assert pruned.model(example, training=True).shape == (2, 2)
    assert all(map(np.array_equal, before, model.get_weights()))


def test_a_training_mode_that_does_not_run_is_told() -> None:
    model = after(layers.ReLU(), TrainingBranch(fails=True), layers.Conv2D(8, 3))
    (note,) = prune(model, np.ones((2, 6, 6, 3), "float32"), 1).notes
    assert note.startswith("only evaluation mode was checked")
    assert "only for predictions" in note


LOCKS = {
    "softmax over channels": (layers.Softmax(), "is a softmax over channels"),
    "an own layer": (Twice(name="twice"), "twice (Twice) is an operation without a rule"),
    "an own activation": (
        layers.Activation(lambda x: ops.flip(x, -1), name="own"),
        "the activation <lambda> of own (Activation) may mix channels",
    ),
    "attention": (
        lambda x: layers.MultiHeadAttention(2, 4, name="attention")(x, x),
        "attention (MultiHeadAttention) is an operation without a rule",
    ),
    "a constant per channel": (lambda x: x + np.ones(8, "float32"), "with what is not a channel"),
    "a sum over channels": (
        lambda x: ops.sum(x, axis=-1, keepdims=True),
        "computes one value of several channels",
    ),
    "examples mixed": (
        lambda x: ops.reshape(ops.reshape(x, (-1, 6, 8)), (-1, 6, 6, 8)),
        "mixes examples",
    ),
    "an input added": (
        lambda x: layers.Add(name="add")([x, ops.repeat(x[..., :1] * 0 + 1, 8, axis=-1)]),
        "is an operation without a rule",
    ),
    "every second channel": (lambda x: x[..., ::2], "takes elements at a step"),
}


@pytest.mark.parametrize("name", LOCKS)
def test_what_no_rule_describes_is_locked_by_name(name: str) -> None:
    step, reason = LOCKS[name]
    assert reason in groups_of(after(step))["first"].locked


def test_outputs_are_locked() -> None:
    groups = groups_of(after(head=False))
    assert groups["first"].locked == "is an output of the model"


def test_a_layer_that_also_reads_the_input_keeps_its_channels() -> None:
    inputs = keras.Input((6, 6, 8))
    shared = layers.Conv2D(8, 3, padding="same")
    x = shared(shared(inputs))
    groups = groups_of(keras.Model(inputs, layers.Flatten()(layers.Conv2D(1, 1)(x))))
    assert "what is not a channel" in groups["conv2d"].locked


def test_a_residual_on_the_input_is_locked() -> None:
    inputs = keras.Input((6, 6, 8))
    x = layers.Add(name="add")([inputs, layers.Conv2D(8, 3, padding="same")(inputs)])
    groups = groups_of(keras.Model(inputs, layers.Conv2D(1, 1)(x)))
    assert groups["conv2d"].locked == "add (Add) combines it with what is not a channel"


def test_channels_read_apart_are_groups_of_their_own() -> None:
    def halves(x: Any) -> Any:
        low, high = ops.split(x, [3], axis=-1)
        return layers.Concatenate()([layers.Conv2D(4, 1, name="low")(low), high])

    groups = groups_of(after(halves))
    assert [groups["first"].size, groups["first[3]"].size, groups["low"].size] == [3, 5, 4]


def test_a_filter_is_counted_once_where_layers_are_tied() -> None:
    def block(x: Any) -> Any:
        return layers.Add()([x, layers.Conv2D(8, 1, name="second")(x)])

    groups = groups_of(after(block, layers.BatchNormalization(name="norm")))
    assert list(groups) == ["first", "head"]
    roles = {(member.tensor, member.axis): member.role for member in groups["first"].members}
    assert roles == {
        ("first.kernel", 3): "filter",
        ("first.bias", 0): "bias",
        ("second.kernel", 2): "input",
        ("second.kernel", 3): "filter",
        ("second.bias", 0): "bias",
        ("norm.gamma", 0): "scale",
        ("norm.beta", 0): "shift",
        ("norm.moving_mean", 0): "running",
        ("norm.moving_variance", 0): "running",
        ("head.kernel", 0): "input",
    }


def test_multiplications_are_counted_by_hand() -> None:
    model = after(layers.DepthwiseConv2D(3, name="own"))
    prunable = KerasPrunable(model, np.zeros((1, 6, 6, 3), "float32"))
    assert prunable.uses == {"first.kernel": 36, "own.kernel": 16, "head.kernel": 1}
    assert "own.kernel" in prunable.parameters


def test_a_plan_replays_on_a_model_built_anew() -> None:
    rng = np.random.default_rng(0)

    def build() -> Any:
        # Names are given by Keras, and differ from model to model.
        inputs = keras.Input((6, 6, 3))
        x = layers.Conv2D(8, 3)(layers.Conv2D(8, 3)(inputs))
        return keras.Model(inputs, layers.Dense(2)(layers.Flatten()(x)))

    first, second = build(), build()
    redraw(first, rng)
    second.set_weights(first.get_weights())
    example = drawn_example(first, rng)
    prunable = KerasPrunable(first, example)
    plan = random_plan(prunable, rng)
    other = KerasPrunable(second, example)
    replayed = other.removed(plan_from_json(plan.to_json(), source="plan.json"))
    outputs = prunable.outputs(prunable.removed(plan))
    assert np.array_equal(outputs[0], other.outputs(replayed)[0])
    with pytest.raises(PruningError, match="another architecture"):
        KerasPrunable(after(), example).removed(plan)


def test_settings_of_layers_are_kept() -> None:
    model = after(
        layers.Conv2D(6, 3, kernel_regularizer="l2", trainable=False, name="frozen"),
        layers.Lambda(lambda x: x * 2, name="lambda"),
        layers.Conv2D(4, 1, name="last"),
    )
    model.compile("sgd", "mse")
    rng = np.random.default_rng(0)
    prunable = KerasPrunable(model, drawn_example(model, rng))
    pruned = prunable.removed(random_plan(prunable, rng))
    assert [layer.name for layer in pruned.layers] == [layer.name for layer in model.layers]
    frozen = pruned.get_layer("frozen")
    assert not frozen.trainable
    assert frozen.kernel_regularizer.l2 == model.get_layer("frozen").kernel_regularizer.l2
    assert pruned.get_layer("first").filters == 4
    # The Lambda layer is unknown, so what flows into it stays.
    assert frozen.filters == 6
    assert model.compiled
    assert not pruned.compiled


def recurrent() -> Any:
    inputs = keras.Input((7,), dtype="int32")
    x = layers.Dense(12)(layers.Embedding(20, 8, mask_zero=True)(inputs))
    x = layers.GRU(4)(layers.Bidirectional(layers.LSTM(5, return_sequences=True))(x))
    return keras.Model(inputs, layers.Dense(2)(layers.Dense(9, activation="relu")(x)))


def frozen_inside() -> Any:
    inner = keras.Sequential([keras.Input((6, 6, 3)), layers.Conv2D(8, 3)])
    inner.trainable = False
    return keras.Sequential([inner, layers.Flatten(), layers.Dense(6), layers.Dense(2)])


def several_inner_outputs() -> Any:
    inputs = keras.Input((6, 6, 4))
    inner = keras.Model(
        inputs, {"x": layers.Conv2D(8, 3)(inputs), "y": layers.Conv2D(4, 3)(inputs)}
    )
    image = keras.Input((6, 6, 3))
    found = inner(layers.Conv2D(4, 1)(image))
    x = layers.Concatenate()([found["x"], found["y"]])
    return keras.Model(image, layers.Dense(2)(layers.Flatten()(x)))


def sizes_not_known() -> Any:
    inputs = keras.Input((None, None, 3))
    x = layers.Conv2D(8, 3)(layers.Conv2D(8, 3)(inputs))
    x = ops.where(x > 0, x, x * 0.1) / ops.max(ops.abs(x), axis=(1, 2), keepdims=True)
    return keras.Model(inputs, layers.Dense(2)(layers.GlobalAveragePooling2D()(x)))


CASES: dict[str, Callable[[], Any]] = {
    "recurrent layers": recurrent,
    "a frozen model inside": frozen_inside,
    "several outputs inside": several_inner_outputs,
    "sizes not known": sizes_not_known,
    "attention": lambda: after(
        layers.Conv2D(6, 1), lambda x: layers.MultiHeadAttention(2, 4)(x, x)
    ),
    "an own layer": lambda: after(layers.Conv2D(6, 1), Twice()),
    "another layer inside": lambda: after(
        layers.Conv2D(6, 1), layers.SpectralNormalization(layers.Conv2D(5, 1))
    ),
    "normalised over all axes": lambda: after(layers.LayerNormalization(axis=[1, 2, 3])),
    "indices from the end": lambda: after(lambda x: x[:, 2:, None, ..., -4:-1][:, :, 0]),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
def test_what_is_unusual_is_pruned_with_proof(name: str) -> None:
    rng = np.random.default_rng(0)
    model = CASES[name]()
    redraw(model, rng)
    example = drawn_example(model, rng)
    if name == "sizes not known":
        example = [rng.normal(size=(2, 7, 8, 3))]
    prunable = KerasPrunable(model, example)
    plan = random_plan(prunable, rng)
    assert plan.count
    pruned = prunable.removed(plan)
    prove(prunable, plan, pruned, count=plan.count)
    flags = [[layer.trainable for layer in one._flatten_layers()] for one in (model, pruned)]
    assert flags[0] == flags[1]


def test_layers_of_other_precisions_are_pruned() -> None:
    rng = np.random.default_rng(0)
    policy = keras.DTypePolicy("mixed_bfloat16")
    model = after(layers.Conv2D(8, 3, dtype=policy), layers.BatchNormalization(dtype=policy))
    redraw(model, rng)
    prunable = KerasPrunable(model, drawn_example(model, rng))
    plan = random_plan(prunable, rng)
    assert relative_difference(*prunable.compared(plan, "float64")) <= 1e-12
    assert prunable.removed(plan).layers[2].dtype_policy.name == "mixed_bfloat16"


class Subclassed(keras.Model):  # type: ignore[misc]
    def call(self, inputs: Any) -> Any:
        return inputs


@pytest.mark.parametrize(
    ("build", "example", "message"),
    [
        (lambda: Subclassed(name="own"), [1.0], "own .Subclassed.: the model has a call of its"),
        (lambda: keras.Sequential([layers.Dense(2)]), [1.0], "is not built; add keras.Input"),
        (lambda: "model.keras", [1.0], "a str is not a Keras model"),
        (after, np.zeros((1, 6, 6, 4)), r"has shape \[1, 6, 6, 4\]; the model takes \[any, 6, 6"),
        (after, [np.zeros((1, 6, 6, 3))] * 2, "the example has 2 arrays; the model has 1 inputs"),
        (after, {"image": np.zeros((1, 6, 6, 3))}, "the example lacks the input"),
    ],
)
def test_what_cannot_be_pruned_is_refused_in_one_line(
    build: Any, example: Any, message: str
) -> None:
    with pytest.raises(PruningError, match=message) as caught:
        KerasPrunable(build(), example)
    assert "\n" not in str(caught.value)
