"""Rules about data without torch: a loop in plain numpy, and Keras."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.rules.trainings import digits
from vinedresser.capture import Hook, open_run
from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.capture.recording.recording import Recording
from vinedresser.rules.base import Rule, capture_for
from vinedresser.rules.data.class_imbalance import ClassImbalance
from vinedresser.rules.data.corrupt_inputs import CorruptInputs
from vinedresser.rules.data.corrupt_labels import CorruptLabels
from vinedresser.rules.data.leakage.data_leakage import DataLeakage
from vinedresser.rules.data.single_label import SingleLabel
from vinedresser.rules.data.token_ratio import TokenRatio
from vinedresser.rules.data.unnormalised_inputs import UnnormalisedInputs
from vinedresser.rules.data.unnormalised_targets import UnnormalisedTargets
from vinedresser.rules.judge import judge
from vinedresser.rules.losses.loss_output_mismatch import LossOutputMismatch
from vinedresser.store.finding import Finding

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

KINDS: tuple[type[Rule], ...] = (
    UnnormalisedInputs,
    UnnormalisedTargets,
    CorruptInputs,
    SingleLabel,
    CorruptLabels,
    ClassImbalance,
    DataLeakage,
    TokenRatio,
    LossOutputMismatch,
)


def rows() -> tuple[Array, Labels, Array, Labels]:
    """Return digits for training and for evaluation."""
    data = digits()
    x, x_eval = (part.numpy().astype(np.float64) for part in (data.x, data.x_eval))
    return x, data.y.numpy(), x_eval, data.y_eval.numpy()


def judged(run: Path) -> list[Finding]:
    """Return the findings of the rules."""
    findings = judge(open_run(run), [kind() for kind in KINDS])
    assert not [finding for finding in findings if "the rule itself failed" in finding.seen]
    return [finding for finding in findings if finding.statistic]


class Softmax:
    """Softmax regression with its gradient written out; weights float64 [64, 10]."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        self.weights = np.zeros((64, 10))

    def loss(self, x: Array, y: Labels) -> tuple[Array, float, Array]:
        """Return logits, cross-entropy and the gradient of the weights."""
        logits = x @ self.weights
        logs = logits - logits.max(1, keepdims=True)
        logs -= np.log(np.exp(logs).sum(1, keepdims=True))
        slope = np.exp(logs)
        slope[np.arange(len(y)), y] -= 1
        return logits, float(-logs[np.arange(len(y)), y].mean()), x.T @ slope / len(y)

    def step(self, x: Array, y: Labels) -> None:
        logits, loss, gradient = self.loss(x, y)
        self.weights -= 0.5 * gradient
        self.hook.step(inputs=x, labels=y, outputs=logits, loss=loss)

    def evaluate(self, x: Array, y: Labels) -> None:
        logits, loss, _ = self.loss(x, y)
        with self.hook.mode("eval"):
            self.hook.step(inputs=x, labels=y, outputs=logits, loss=loss)


def reported(
    directory: Path,
    labels: Callable[[Labels], Labels] = lambda y: y,
    *,
    order: Callable[[Labels, np.random.Generator], NDArray[np.int64]] | None = None,
    leak: bool = False,
    prepare: Callable[[Array], Array] = lambda x: x,
) -> list[Finding]:
    """Train softmax regression for 400 steps with manual reports; return the findings."""
    x, y, x_eval, y_eval = rows()
    y, y_eval = labels(y), labels(y_eval)
    if leak:
        x_eval, y_eval = x, y
    generator = np.random.default_rng(0)
    kinds = [kind() for kind in KINDS]
    with Hook(directory, collections=capture_for(kinds).collections, total_steps=400) as hook:
        model = Softmax(hook)
        places: Iterable[NDArray[np.int64]] = ()
        for step in range(400):
            if step % 22 == 0:
                chosen = order(y, generator) if order else generator.permutation(len(x))
                places = iter(np.array_split(chosen, 22))
                model.evaluate(x_eval[:100], y_eval[:100])
            some = next(iter(places))
            model.step(prepare(x[some]), y[some])
    return judged(directory)


def test_a_correct_loop_is_ignored(tmp_path: Path) -> None:
    assert reported(tmp_path / "run") == []


def test_evaluated_training_rows(tmp_path: Path) -> None:
    (finding,) = reported(tmp_path / "run", leak=True)
    assert (finding.fault, finding.severity) == ("data_leakage", "warning")


def test_rows_shared_by_all_steps_and_evaluations_are_a_hint(tmp_path: Path) -> None:
    """As the nodes of a graph, of which the loss has the labels of half."""
    x, y, *_ = rows()
    x, y = x[:100], y[:100]
    with Hook(tmp_path / "run", collections=capture_for([DataLeakage()]).collections) as hook:
        model = Softmax(hook)
        for step in range(200):
            model.step(x, np.where(np.arange(100) < 50, y, y[0]))
            if step % 20 == 0:
                model.evaluate(x, y)
    (finding,) = judge(open_run(tmp_path / "run"), [DataLeakage()])
    assert (finding.fault, finding.severity) == ("data_leakage", "info")


def test_rows_sorted_by_class(tmp_path: Path) -> None:
    (finding,) = reported(
        tmp_path / "run", order=lambda y, _: np.argsort(y, kind="stable").astype(np.int64)
    )
    assert finding.fault == "single_label"


def sorted_digits(*, mixed: bool) -> tuple[Array, Labels, Array, Labels]:
    """Return digits, of which the last of those sorted by class are held out.

    Args:
        mixed: the last of these have other classes.
    """
    x, y, *_ = rows()
    order = np.argsort(y, kind="stable")
    x, y = x[order], y[order]
    held = np.arange(len(y))[-100:]
    if mixed:
        held[-10:] = np.arange(0, 1000, 100)
    rest = np.setdiff1d(np.arange(len(y)), held)
    return x[rest], y[rest], x[held], y[held]


@pytest.mark.parametrize("mixed", [False, True])
def test_evaluations_with_a_single_label(mixed: bool, tmp_path: Path) -> None:
    x, y, x_eval, y_eval = sorted_digits(mixed=mixed)
    generator, rule = np.random.default_rng(0), SingleLabel()
    with Hook(tmp_path / "run", collections=capture_for([rule]).collections) as hook:
        model = Softmax(hook)
        for step in range(120):
            chosen = generator.integers(len(x), size=64)
            model.step(x[chosen], y[chosen])
            if step % 20 == 0:
                with hook.mode("eval"):
                    for some in (slice(0, 50), slice(50, 100)):
                        logits, loss, _ = model.loss(x_eval[some], y_eval[some])
                        hook.step(labels=y_eval[some], outputs=logits, loss=loss)
    found = judge(open_run(tmp_path / "run"), [rule])
    assert [(one.fault, one.mode) for one in found] == [("single_label", "eval")] * (not mixed)


@pytest.mark.parametrize(
    ("batches", "share"),
    [
        ([torch.ones(3, dtype=torch.bfloat16), torch.zeros(1, dtype=torch.bfloat16)], 0.75),
        ([torch.ones(3, 1, requires_grad=True), [1, 0]], 0.8),
    ],
)
def test_labels_of_any_kind_are_counted(
    batches: list[Any], share: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = capture_for([SingleLabel()]).collections
    with Hook(tmp_path / "run", collections=config) as hook, hook.mode("eval"):
        for labels in batches:
            hook.step(labels=labels)
    shares = open_run(tmp_path / "run").scalars("state")["state/first_label/batch"]
    assert shares.values.tolist() == [share]
    assert capsys.readouterr().err == ""


def test_labels_of_two_outputs_are_not_a_single_one() -> None:
    recording = Recording("eval", 0, CaptureConfig().due(0, "eval"))
    recording.add_first_label("shares", np.zeros((4, 3)))
    recording.add_first_label("shares", np.zeros((4, 2)))
    assert recording.scalars() == {"shares": 0.5}


@pytest.mark.thorough
@pytest.mark.parametrize(("mixed", "plain"), [(False, False), (True, False), (False, True)])
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_evaluations_with_a_single_label_in_a_loop_of_keras(
    mixed: bool, plain: bool, tmp_path: Path
) -> None:
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(0)
    x, y, x_eval, y_eval = sorted_digits(mixed=mixed)
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(10)])
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer, rule = keras.optimizers.Adam(1e-2), SingleLabel()
    generator = np.random.default_rng(0)
    held = tf.data.Dataset.from_tensor_slices((x_eval, y_eval)).batch(50)
    with Hook(tmp_path / "run", collections=capture_for([rule]).collections) as hook:
        hook.watch(model, loss=loss_fn, optimizer=optimizer)
        for step in range(100):
            chosen = generator.integers(len(x), size=64)
            with tf.GradientTape() as tape:
                loss = loss_fn(y[chosen], model(x[chosen], training=True))
            optimizer.apply(
                tape.gradient(loss, model.trainable_variables), model.trainable_variables
            )
            if step % 20 == 19:
                for some, wanted in held:
                    loss_fn(wanted.numpy() if plain else wanted, model(some, training=False))
    found = judge(open_run(tmp_path / "run"), [rule])
    assert [(one.fault, one.mode) for one in found] == [("single_label", "eval")] * (not mixed)


@pytest.mark.thorough
def test_shuffled_labels(tmp_path: Path) -> None:
    found = reported(tmp_path / "run", lambda y: np.random.default_rng(1).permutation(y))
    assert [one.fault for one in found] == ["corrupt_labels"]


def test_wrong_axis_order(tmp_path: Path) -> None:
    found = reported(tmp_path / "run", prepare=lambda x: np.ascontiguousarray(x.T).reshape(x.shape))
    assert "corrupt_inputs" in {one.fault for one in found}


def fitted(directory: Path, y: Labels, validation: tuple[Array, Labels]) -> list[Finding]:
    """Fit a Keras network to digits for 184 steps; return the findings."""
    import keras

    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((64,)),
            layers.Dense(64, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(1e-2), "sparse_categorical_crossentropy")
    wanted = capture_for(kind() for kind in KINDS).collections
    with Hook(directory, collections=wanted, total_steps=184) as hook:
        hook.watch(model)
        model.fit(rows()[0], y, batch_size=64, epochs=8, verbose=0, validation_data=validation)
    return judged(directory)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_evaluated_training_rows_in_keras(tmp_path: Path) -> None:
    x, y, x_eval, y_eval = rows()
    assert fitted(tmp_path / "sound", y, (x_eval, y_eval)) == []
    (finding,) = fitted(tmp_path / "leak", y, (x[:200], y[:200]))
    assert finding.fault == "data_leakage"


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_shuffled_labels_in_keras(tmp_path: Path) -> None:
    _, y, x_eval, y_eval = rows()
    (finding,) = fitted(tmp_path / "run", np.random.default_rng(1).permutation(y), (x_eval, y_eval))
    assert finding.fault == "corrupt_labels"
