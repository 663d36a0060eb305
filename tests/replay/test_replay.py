"""A broken step runs again in another process: bit for bit, down to the sample and the line."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import torch

from tests.capture.torch_.guard.trainings import BAD_ROW as ZERO_ROW
from tests.capture.torch_.guard.trainings import BAD_STEP as ZERO_STEP
from tests.capture.torch_.guard.trainings import train
from tests.cli.command_line import vinedresser
from tests.paths import ROOT
from tests.replay.stories import (
    BAD_ROW,
    BAD_STEP,
    train_accumulated,
    train_attention,
    train_half,
)
from tests.warm_python import TORCH
from vinedresser.errors import ConfigError
from vinedresser.objects import LocalStorage
from vinedresser.replay.stepping import bisect, locate, replay
from vinedresser.snapshots.reading import open_snapshot
from vinedresser.store.records import TrackingRecord, write_record


def again(run: Path, step: int, factory: str, *options: str, code: int = 0) -> str:
    """Run a step in another process; return what the command prints."""
    place = run / "snapshots" / f"step-{step}"
    command = ["-m", "vinedresser", "replay", str(place), *options]
    if factory:
        command += ["--factory", f"tests.replay.stories:{factory}"]
    done = TORCH.run(command, ROOT, os.environ)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def line_of(file: str, text: str) -> str:
    """Return file and number of the line that has a text."""
    lines = ROOT.joinpath(file).read_text(encoding="utf-8").splitlines()
    (number,) = (number for number, line in enumerate(lines, 1) if text in line)
    return f"{file}:{number}"


@pytest.mark.thorough
def test_the_derivative_of_a_norm_at_zero(tmp_path: Path) -> None:
    train(tmp_path / "run")
    told = again(tmp_path / "run", ZERO_STEP, "distances", "--locate", "--bisect")
    assert re.search(r"loss [\d.]+: the same   gradients: 6 of 6 the same", told)
    assert re.search(rf"sample {ZERO_ROW} of 16\b.*\(\d runs\)", told)
    assert "batch normalization computes other statistics" in told
    assert "dropout draws other masks" in told
    assert "aten.div in the backward (SqrtBackward0)" in told
    assert f"is inf at [{ZERO_ROW}]" in told
    assert line_of("tests/capture/torch_/guard/trainings.py", ".sum(1).sqrt().mean()") in told


@pytest.mark.thorough
def test_an_overflow_of_half_precision_in_the_loss(tmp_path: Path) -> None:
    train_half(tmp_path / "run")
    told = again(tmp_path / "run", BAD_STEP, "half", "--locate", "--bisect")
    assert re.search(r"loss inf: the same   gradients: 4 of 4 the same", told)
    assert "lasting: the same batch breaks the step again: the data or the code" in told
    assert re.search(rf"sample {BAD_ROW} of 64\b.*\(7 runs\)", told)
    assert re.search(
        r"operation: aten.exp in the forward: float16 \[64, 1\] is inf at \[11, 0\]", told
    )
    assert line_of("tests/replay/stories.py", "(wanted - found).half().exp()") in told
    assert "300" in told


@pytest.mark.slow
def test_the_result_is_saved_on_request(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train_half(run)
    place = run / "snapshots" / f"step-{BAD_STEP}"
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    again(run, BAD_STEP, "half", "--locate")
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    # As a run of somebody else, whose MLflow is not contacted.
    write_record(LocalStorage(run), TrackingRecord("http://localhost:1", "1", "2"))
    told = again(run, BAD_STEP, "half", "--locate", "--bisect", "--save")
    assert f"saved: {place}/replay.json" in told
    assert "not sent to MLflow: " in told
    # The run is over: its report is written again.
    report = (run / "report.html").read_text(encoding="utf-8")
    assert "aten.exp in the forward: float16 [64, 1] is inf at [11, 0]" in report
    listed = vinedresser("snapshots", str(run), code=0).stdout
    assert re.search(rf"step-{BAD_STEP}: sample {BAD_ROW} of 64\b.*\(7 runs\)", listed)
    assert "aten.exp in the forward" in listed


@pytest.mark.thorough
@pytest.mark.parametrize("factory", ["accumulated", "accumulated_losses"])
def test_each_batch_of_an_accumulation_counts(tmp_path: Path, factory: str) -> None:
    train_accumulated(tmp_path / "run")
    snapshot = open_snapshot(tmp_path / "run" / "snapshots" / "step-0")
    replayed = replay(snapshot, f"tests.replay.stories:{factory}")
    assert replayed.comparison.exact, replayed.comparison
    assert len(replayed.outcome.losses) == 3
    # As often as one likes.
    assert replayed.replay.run().gradients == replayed.outcome.gradients


@pytest.mark.thorough
def test_masks_are_not_blamed(tmp_path: Path) -> None:
    train_attention(tmp_path / "run")
    replayed = replay(
        open_snapshot(tmp_path / "run" / "snapshots" / "step-0"), "tests.replay.stories:attention"
    )
    assert replayed.comparison.exact
    found, inputs = locate(replayed)
    assert inputs == []
    assert found is not None
    assert (found.node, found.phase) == ("SqrtBackward0", "backward")
    assert "norm(dim=1)" in found.place.text
    samples = bisect(replayed)
    assert samples is not None
    assert len(samples.found.samples) == 1


@pytest.mark.thorough
def test_weights_that_are_spoilt_already_are_blamed(tmp_path: Path) -> None:
    train_attention(tmp_path / "run")
    replayed = replay(
        open_snapshot(tmp_path / "run" / "snapshots" / "step-0"), "tests.replay.stories:attention"
    )
    (model,) = replayed.replay.step.models.values()
    path, weight = next(iter(model.parameters.items()))
    weight.view(-1)[0] = float("nan")
    samples = bisect(replayed)
    assert samples is not None
    assert samples.words == f"no sample is to blame: {path} is not finite before the step"


@pytest.mark.thorough
def test_random_numbers_are_those_of_the_training(tmp_path: Path) -> None:
    train(tmp_path / "run")
    snapshot = open_snapshot(tmp_path / "run" / "snapshots" / f"step-{ZERO_STEP}")
    replayed = replay(snapshot, "tests.replay.stories:distances")
    assert replayed.comparison.exact
    # Without them, dropout draws others.
    replayed.replay.step.random["torch"] = torch.Generator().manual_seed(5).get_state()
    assert not torch.equal(replayed.replay.run().losses[0], replayed.outcome.losses[0])


@pytest.mark.thorough
def test_a_difference_is_told(tmp_path: Path) -> None:
    train_half(tmp_path / "run")
    snapshot = open_snapshot(tmp_path / "run" / "snapshots" / f"step-{BAD_STEP}")
    snapshot.record.environment.update({"instruction set": "another", "processor": "another"})
    snapshot.record.versions["torch"] = "1.0"
    found = replay(snapshot, "tests.replay.stories:half").comparison
    assert found.environment.keys() == {"instruction set", "processor", "torch"}
    assert found.environment["torch"] == ("1.0", torch.__version__)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("other_model", r"builds another model: it has no parameter 0.weight, which the snapshot"),
        ("no_model", r"returned a int; expected the model"),
        ("missing", r"has no function missing"),
    ],
)
def test_a_wrong_factory_is_named(tmp_path: Path, factory: str, message: str) -> None:
    train_half(tmp_path / "run")
    snapshot = open_snapshot(tmp_path / "run" / "snapshots" / f"step-{BAD_STEP}")
    with pytest.raises(ConfigError, match=message):
        replay(snapshot, f"tests.replay.stories:{factory}")


@pytest.mark.thorough
def test_without_a_factory_it_says_what_is_needed(tmp_path: Path) -> None:
    train_half(tmp_path / "run")
    told = again(tmp_path / "run", BAD_STEP, "", code=2)
    assert "--factory MODULE:FUNCTION is needed: a function without arguments that returns" in told
