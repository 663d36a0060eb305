"""A broken step of Keras runs again in another process, down to the sample and the line."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from subprocess import run as execute
from typing import Any

import pytest

from tests.capture.keras_.guard.trainings import (
    BAD_ROW,
    BAD_STEP,
    BATCH,
    Distance,
    compiled_by_xla,
    distances,
    halves,
    network,
    train,
)
from tests.paths import ROOT
from vinedresser.errors import ConfigError
from vinedresser.replay.keras_.stepping import bisect, locate, replay
from vinedresser.snapshots.reading import open_snapshot

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

_FACTORIES = "tests.capture.keras_.guard.trainings"


def again(
    run: Path, factory: str, *options: str, backend: str = "tensorflow", code: int = 0
) -> str:
    """Run the bad step in another process; return what the command prints."""
    place = run / "snapshots" / f"step-{BAD_STEP}"
    command = [sys.executable, "-m", "vinedresser", "replay", str(place), *options]
    done = execute(
        [*command, "--factory", f"{_FACTORIES}:{factory}"],
        cwd=ROOT,
        env=os.environ | {"KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + (done.stderr if code else "")


def line_of(text: str) -> str:
    """Return file and number of the line of the trainings that has a text."""
    file = f"{_FACTORIES.replace('.', '/')}.py"
    lines = ROOT.joinpath(file).read_text(encoding="utf-8").splitlines()
    (number,) = (number for number, line in enumerate(lines, 1) if text in line)
    return f"{file}:{number}"


@pytest.mark.slow
def test_the_derivative_of_a_norm_at_zero(tmp_path: Path) -> None:
    train(tmp_path / "run", distances())
    told = again(tmp_path / "run", "distances", "--locate", "--bisect")
    assert re.search(r"loss [\d.]+: the same   gradients: 6 of 6 the same", told)
    assert re.search(rf"sample {BAD_ROW} of {BATCH}\b.*\(\d runs\)", told)
    assert "SqrtGrad in the backward" in told
    assert f"is inf at [{BAD_ROW}]" in told
    assert line_of("ops.sum((found * weights)") in told


@pytest.mark.slow
def test_an_overflow_of_half_precision_in_the_loss(tmp_path: Path) -> None:
    train(tmp_path / "run", halves(), half=True)
    told = again(tmp_path / "run", "halves", "--what-if", code=2)
    assert "--what-if needs a snapshot of torch, not of keras" in told
    told = again(tmp_path / "run", "halves", "--locate", "--bisect", "--save")
    assert "saved: " in told
    assert re.search(r"loss inf: the same   gradients: 6 of 6 the same", told)
    assert re.search(rf"sample {BAD_ROW} of {BATCH}\b.*\(\d runs\)", told)
    assert rf"operation: Exp in the forward: float16 [{BATCH}, 3] is inf at [{BAD_ROW}, 0]" in told
    assert line_of("keras.ops.exp(") in told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("story", "operation", "line"),
    [
        ("distances", "SqrtBackward0", "ops.sum((found * weights)"),
        ("halves", "aten.exp in the forward", "keras.ops.exp("),
    ],
)
def test_both_stories_on_torch(story: str, operation: str, line: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-m", "tests.replay.keras_.torch_story", str(run), story]
    done = execute(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = again(run, story, "--locate", "--bisect", backend="torch")
    assert "the same   gradients: 6 of 6 the same" in told
    assert f"sample {BAD_ROW} of {BATCH}," in told
    assert operation in told
    assert line_of(line) in told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "factory"), [(distances, "distances"), (compiled_by_xla, "compiled_by_xla")]
)
def test_a_step_is_the_same_in_this_process(make: Any, factory: str, tmp_path: Path) -> None:
    train(tmp_path / "run", make())
    snapshot = open_snapshot(tmp_path / "run" / "snapshots" / f"step-{BAD_STEP}")
    replayed = replay(snapshot, f"{_FACTORIES}:{factory}")
    assert replayed.comparison.exact
    assert replayed.comparison.losses
    samples = bisect(replayed)
    assert samples is not None
    assert samples.found.samples == [(0, BAD_ROW)]


class Traced(Distance):
    """The distance in a function that TensorFlow traces."""

    def call(self, weights: Any, found: Any) -> Any:
        """Return the distances [batch]."""
        import tensorflow as tf

        def distance() -> Any:
            return tf.sqrt(tf.reduce_sum((found * weights) ** 2, axis=1))  # traced

        return tf.function(distance)()


def traced() -> Any:
    """Return the network with the traced loss."""
    model = network()
    model.compile("adam", Traced())
    return model


@pytest.mark.thorough
def test_operations_of_functions_that_are_traced_are_located(tmp_path: Path) -> None:
    train(tmp_path / "run", traced())
    snapshot = open_snapshot(tmp_path / "run" / "snapshots" / f"step-{BAD_STEP}")
    replayed = replay(snapshot, f"{__name__}:traced")
    assert replayed.comparison.exact
    eager = replay(snapshot, f"{__name__}:traced", eager=True)
    assert eager.outcome.nonfinite == replayed.outcome.nonfinite
    for one in (replayed, eager):
        operation, bad = locate(one)
        assert bad == []
        assert operation is not None
        assert operation.words.startswith("SqrtGrad in the backward")
        assert operation.place.file == __file__
        assert operation.place.text.endswith("# traced")


@pytest.mark.thorough
def test_another_model_is_named(tmp_path: Path) -> None:
    train(tmp_path / "run", distances())
    snapshot = open_snapshot(tmp_path / "run" / "snapshots" / f"step-{BAD_STEP}")
    with pytest.raises(ConfigError, match=r"builds another model: it has no variable conv2d"):
        replay(snapshot, f"{_FACTORIES}:other_model")
