"""Capture from Keras trainings in unchanged scripts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.capture.attach.runs import Both, alone_in_process, attached, both, script, split_stderr
from vinedresser.store.reading.reader import open_run

# Scripts with torch are the quick case.
pytestmark = pytest.mark.thorough

TRAININGS = """
    import copy, hashlib, os, tempfile
    import keras, numpy as np, tensorflow as tf

    keras.utils.set_random_seed(1)
    x = np.random.default_rng(0).normal(size=(24, 4)).astype("float32")
    y = (x[:, 0] > 0).astype("int32")

    def model():
        return keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, activation="relu"),
                                 keras.layers.Dropout(0.2), keras.layers.Dense(2)])

    def show(losses, *models):
        digest = hashlib.sha256()
        for one in models:
            for value in one.get_weights():
                digest.update(value.tobytes())
        print(*losses, digest.hexdigest())

    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    fitted = model()
    fitted.compile("adam", loss=loss_of, metrics=["accuracy"])
    first = fitted.fit(x, y, batch_size=8, epochs=1, verbose=0, validation_data=(x, y))
    # Saving, loading and copying a model access all of its attributes.
    with tempfile.TemporaryDirectory() as folder:
        fitted.save(f"{folder}/model.keras")
        keras.models.load_model(f"{folder}/model.keras")
        fitted.export(f"{folder}/exported", verbose=False)
    copy.deepcopy(fitted)
    # Fitted on, it is the same training.
    second = fitted.fit(x, y, batch_size=8, epochs=1, verbose=0)
    show(first.history["loss"] + second.history["loss"], fitted)

    batched = model()
    batched.compile("sgd", loss=loss_of)
    show([float(batched.train_on_batch(x, y)) for _ in range(12)], batched)

    looped = model()
    optimizer = keras.optimizers.SGD(0.1)
    losses = []
    for _ in range(5):
        with tf.GradientTape() as tape:
            loss = loss_of(y, looped(x, training=True))
        gradients = tape.gradient(loss, looped.trainable_variables)
        optimizer.apply(gradients, looped.trainable_variables)
        losses.append(float(loss))
    show(losses, looped)
    looped.predict(x, verbose=0)

    # Beside a model, a variable is no training.
    beside, variable = model(), tf.Variable(x)
    optimizer = keras.optimizers.SGD(0.1)
    for _ in range(15):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(beside(variable) ** 2)
        optimizer.apply_gradients([(tape.gradient(loss, variable), variable)])
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Both:
    """Run all trainings in this process, and attached in another."""
    variables = {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    for name, value in variables.items():
        os.environ.setdefault(name, value)
    directory = tmp_path_factory.mktemp("keras")
    path = script(directory, TRAININGS)
    options = ("--collection", "gradients:every=1")
    return Both(
        alone_in_process(path),
        attached("train.py", cwd=directory, options=options, **variables),
        directory / "runs" / "run",
    )


def test_attached_trainings_behave_as_alone(trained: Both) -> None:
    assert trained.attached.returncode == trained.alone.returncode == 0, trained.attached.stderr
    assert trained.attached.stdout == trained.alone.stdout
    assert "capture failed" not in split_stderr(trained.attached.stderr)[0]


def test_fit_is_captured_with_its_losses_metrics_and_gradients(trained: Both) -> None:
    run = trained.open()
    assert run.info.framework == "keras"
    assert run.steps("train").tolist() == list(range(6))
    assert "losses/loss" in run.scalars("losses")
    assert "metrics/accuracy" in run.scalars("metrics")
    assert [run.tensor(name).shape for name in run.tensor_names(regex="^gradients/.*kernel")] == [
        (4, 8),
        (8, 2),
    ]
    assert len(run.steps("eval")) == 1


@pytest.mark.parametrize(("number", "steps"), [(2, 12), (3, 5)])
def test_batches_and_loops_are_separate_trainings(trained: Both, number: int, steps: int) -> None:
    run = trained.open(number)
    printed = trained.alone.stdout.splitlines()[number - 1].split()[:steps]
    kernels = run.tensor_names(regex="^gradients/.*kernel")
    assert [run.tensor(name).steps().tolist() for name in kernels] == 2 * [list(range(steps))]
    if number == 2:
        values = run.scalars("losses")["losses/loss"].values
        assert values == pytest.approx([float(word) for word in printed])


def test_beside_a_model_variables_are_no_training(trained: Both) -> None:
    assert not trained.run.with_name("run.4").exists()
    assert "variable" not in " ".join(trained.open(3).tensor_names())


COMPILED = """
    import keras, tensorflow as tf

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    optimizer = keras.optimizers.SGD(0.1)

    @tf.function
    def train(x):
        for _ in tf.range(3):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(x, training=True) ** 2)
            variables = model.trainable_variables
            optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    for _ in range({calls}):
        print(float(train(tf.ones((8, 4)))) >= 0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("calls", [1, 3])
def test_a_model_that_is_found_in_a_running_function(calls: int, tmp_path: Path) -> None:
    """Its steps are counted at the next call; without one, that is said."""
    script(tmp_path, COMPILED.format(calls=calls))
    done = attached("train.py", cwd=tmp_path, KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="3")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True\n" * calls
    assert ("only call of the tf.function" in done.stderr) == (calls == 1)
    assert ("step 9" in split_stderr(done.stderr)[1]) == (calls == 3)


@pytest.mark.slow
def test_a_keras_model_in_a_loop_of_torch_is_a_torch_model(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
        import keras, torch

        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        criterion = torch.nn.MSELoss()
        for _ in range(3):
            optimizer.zero_grad()
            criterion(model(torch.ones(8, 4)), torch.zeros(8, 2)).backward()
            optimizer.step()
        """,
    )
    options = ("--collection", "gradients:every=1")
    done = attached("train.py", cwd=tmp_path, options=options, KERAS_BACKEND="torch")
    assert done.returncode == 0, done.stderr
    assert "vinedresser: " not in done.stderr
    run = open_run(tmp_path / "runs" / "run")
    assert run.scalars("losses")["losses/MSELoss"].steps.tolist() == [0, 1, 2]
    # Its layers, which are no submodules in torch, are not captured again.
    gradients = sorted(run.tensor_names(collection="gradients"))
    assert [name.rpartition("/")[2] for name in gradients] == ["bias", "kernel"]
    assert all(run.tensor(name).steps().tolist() == [0, 1, 2] for name in gradients)


@pytest.mark.slow
def test_an_optimizer_of_keras_in_a_loop_of_torch_is_seen(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
        import keras, torch

        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        optimizer = keras.optimizers.SGD(0.1)
        criterion = keras.losses.MeanSquaredError()
        for _ in range(6):
            model.zero_grad()
            loss = criterion(torch.zeros(8, 2), model(torch.ones(8, 4), training=True))
            loss.backward()
            print(loss.item())
            with torch.no_grad():
                weights = model.trainable_weights
                optimizer.apply([one.value.grad for one in weights], weights)
        """,
    )
    options = ("--collection", "gradients:every=1")
    pair = both("train.py", cwd=tmp_path, options=options, KERAS_BACKEND="torch")
    values = [float(line) for line in pair.attached.stdout.splitlines()]
    run = pair.open()
    assert run.scalars("losses")["losses/loss"].values.tolist() == pytest.approx(values)
    assert "gradients/sequential_dense_kernel" in run.tensor_names()
