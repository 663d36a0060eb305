"""Capture from trainings of variables without a Keras model in unchanged scripts."""

from __future__ import annotations

import numpy as np
import pytest

from tests.capture.attach.runs import Both, alone_in_process, attached, script, split_stderr

# Scripts with torch are the quick case.
pytestmark = pytest.mark.thorough

TRAININGS = """
    import sys
    import numpy as np, tensorflow as tf

    x = np.random.default_rng(0).normal(size=(24, 4)).astype("float32")
    y = (x[:, :1] > 0).astype("float32")

    def train(wrap):
        w, b = tf.Variable(tf.ones((4, 1)) / 4), tf.Variable(tf.zeros(1))
        optimizer = tf.keras.optimizers.SGD(0.1)

        def step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.keras.losses.mse(y, x @ w + b))
            optimizer.apply_gradients(zip(tape.gradient(loss, [w, b]), [w, b]))
            return loss

        step = wrap(step)
        losses = [float(step(x, y)) for _ in range(15)]
        print("losses", *losses)
        print("w", *w.numpy().ravel().tolist())

    train(lambda step: step)
    train(tf.function)

    # Adversaries, each with variables of its own.
    seen, made = tf.Variable([[0.5]]), tf.Variable([[0.1]])
    first, second = tf.keras.optimizers.Adam(0.01), tf.keras.optimizers.Adam(0.01)
    for _ in range(15):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((seen - made) ** 2)
        first.apply_gradients([(tape.gradient(loss, seen), seen)])
        with tf.GradientTape() as tape:
            other = -tf.reduce_mean((seen - made) ** 2)
        second.apply_gradients([(tape.gradient(other, made), made)])
    print(seen.numpy(), made.numpy(), float(loss), float(other))
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Both:
    """Run the script in this process, and attached in another."""
    directory = tmp_path_factory.mktemp("variables")
    path = script(directory, TRAININGS)
    collections = ("weights", "biases", "gradients", "updates", "labels", "predictions")
    options = tuple(f"--collection={name}:every=1" for name in collections)
    variables = {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    return Both(
        alone_in_process(path),
        attached("train.py", cwd=directory, options=options, **variables),
        directory / "runs" / "run",
    )


def test_attached_trainings_behave_as_alone(trained: Both) -> None:
    assert trained.attached.returncode == trained.alone.returncode == 0, trained.attached.stderr
    assert trained.attached.stdout == trained.alone.stdout
    assert "capture failed" not in split_stderr(trained.attached.stderr)[0]


@pytest.mark.parametrize("number", [1, 2], ids=["eager", "tf.function"])
def test_variables_are_captured_from_the_second_update_on(trained: Both, number: int) -> None:
    run = trained.open(number)
    printed = trained.alone.stdout.splitlines()[2 * number - 2 : 2 * number]
    losses, last = ([float(one) for one in line.split()[1:]] for line in printed)
    assert run.scalars("losses")["losses/loss"].values.tolist() == pytest.approx(losses[1:])
    assert set(run.tensor_names()) == {
        *("weights/w", "biases/b", "gradients/w", "gradients/b", "updates/w", "updates/b"),
        *("labels/batch", "predictions/batch"),
    }
    labels, predictions = (
        run.tensor(f"{kind}/batch").value(5) for kind in ("labels", "predictions")
    )
    assert np.mean((labels - predictions) ** 2) == pytest.approx(losses[6])
    assert run.info.losses["loss"]["settings"] == {"reduction": "mean"}
    step = int(run.steps()[-1])
    after = run.tensor("weights/w").value(step) + run.tensor("updates/w").value(step)
    np.testing.assert_allclose(after.ravel(), last, rtol=1e-6)
    change = -0.1 * run.tensor("gradients/w").value(step)
    np.testing.assert_allclose(run.tensor("updates/w").value(step), change, atol=1e-7)
    assert run.info.optimizers[0]["type"] == "SGD"


def test_adversaries_have_losses_of_their_own(trained: Both) -> None:
    run = trained.open(3)
    losses = run.scalars("losses")
    assert set(losses) == {"losses/first.loss", "losses/second.loss"}
    assert losses["losses/first.loss"].values.min() > 0 > losses["losses/second.loss"].values.max()
    assert {"weights/first.seen", "weights/second.made"} <= set(run.tensor_names())
    assert run.tensor_names(collection="labels") == []
