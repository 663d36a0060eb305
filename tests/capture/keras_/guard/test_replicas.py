"""The guard of a Keras model on several replicas acts before the update."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.capture.keras_.guard.trainings import BAD_STEP, BATCH
from tests.paths import ROOT
from vinedresser.capture import open_run
from vinedresser.objects import LocalStorage
from vinedresser.snapshots.reading import list_snapshots, open_snapshot

# Logical devices must be made before TensorFlow is used: in a process of their own.
MODULE = "tests.capture.keras_.guard.mirrored_training"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train in another process; return the folder of its runs and weights."""
    folder = tmp_path_factory.mktemp("replicas")
    command = [sys.executable, "-m", MODULE, str(folder)]
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == 0
    return folder


def weights(folder: Path, name: str) -> list[NDArray[np.float32]]:
    """Return the weights that a training ended with."""
    with np.load(folder / f"{name}.npz") as saved:
        return [saved[key] for key in saved.files]


@pytest.mark.thorough
def test_a_bad_sample_on_one_of_two_replicas(trained: Path) -> None:
    run = trained / "hook"
    found = list_snapshots(LocalStorage(run), [])
    assert [(one.step, one.reason) for one in found][:1] == [(BAD_STEP, "nonfinite")]
    assert any("one of 2 replicas" in one for one in found[0].inexact)
    (finding,) = (one for one in open_run(run).findings() if one.rule == "nonfinite_gradient")
    assert finding.step == BAD_STEP
    # The part of the batch that one replica had.
    contents = open_snapshot(run / "snapshots" / f"step-{BAD_STEP}").tensors
    assert any(content.shape[:1] == (BATCH // 2,) for content in contents.values())
    for hooked, plain in zip(weights(trained, "hook"), weights(trained, "plain"), strict=True):
        np.testing.assert_array_equal(hooked, plain)


@pytest.mark.thorough
def test_a_stop_comes_before_the_update_of_all_replicas(trained: Path) -> None:
    stopped = open_run(trained / "stop")
    assert stopped.status.state == "stopped"
    assert [finding.step for finding in stopped.findings()] == [BAD_STEP]
    assert all(np.isfinite(weight).all() for weight in weights(trained, "stop"))
