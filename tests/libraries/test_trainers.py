"""Unchanged scripts with trainers of other libraries: `make test-libraries`.

The libraries are not among those of the development environment, so these tests have their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from vinedresser.capture import open_run

pytestmark = [pytest.mark.slow, pytest.mark.libraries]

_ROOT = Path(__file__).parent.parent.parent


def needs(*libraries: str) -> pytest.MarkDecorator:
    """Return a mark that skips a test without some libraries."""
    missing = [library for library in libraries if find_spec(library) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def ran(directory: Path, *command: str) -> dict[str, Any]:
    """Run a command and return what its script printed."""
    directory.mkdir()
    done = subprocess.run(
        [sys.executable, *command],
        cwd=directory,
        env={
            **os.environ,
            "PYTHONPATH": str(_ROOT),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"losses"')]
    printed: dict[str, Any] = json.loads(lines[-1])
    return printed


def means(values: Sequence[float], count: int) -> NDArray[np.float64]:
    """Return the means [count] of equally many values each."""
    parts: NDArray[np.float64] = np.asarray(values, np.float64).reshape(count, -1)
    return np.asarray(parts.mean(1))


@pytest.mark.parametrize(
    ("script", "arguments", "labels", "evaluated"),
    [
        pytest.param("hf_trainer", (), True, True, marks=needs("transformers", "accelerate")),
        pytest.param("accelerate_loop", (), True, False, marks=needs("accelerate")),
        pytest.param(
            "sentences", (), False, False, marks=needs("sentence_transformers", "datasets")
        ),
        pytest.param("lightning_cli", ("fit",), True, True, marks=needs("jsonargparse")),
        pytest.param("timm_model", (), False, False, marks=needs("timm", "torchvision")),
    ],
)
def test_a_healthy_training_is_seen_and_stays_the_same(
    tmp_path: Path, script: str, arguments: tuple[str, ...], labels: bool, evaluated: bool
) -> None:
    module = ("-m", f"tests.libraries.scripts.{script}", *arguments)
    plain = ran(tmp_path / "plain", *module)
    launcher = ("-m", "vinedresser", "run", "--preset", "default", "--name", "run")
    watched = ran(tmp_path / "watched", *launcher, *module)
    # Losses, weights and the bytes of what is saved.
    assert watched == plain

    run = open_run(tmp_path / "watched" / "runs" / "run")
    assert not [finding for finding in run.findings() if finding.severity != "info"]
    columns = run.scalars("losses", mode="train")
    if script == "hf_trainer":
        # The model makes a loss module in each forward.
        assert [*columns] == ["losses/loss"]
    by_step = {
        step: value
        for column in columns.values()
        for step, value in zip(column.steps.tolist(), column.values.tolist(), strict=True)
    }
    losses = [by_step[step] for step in sorted(by_step)]
    assert len(losses) >= 48
    # Trainers print means of several steps, and steps may be sums of several batches.
    count = min(len(losses), len(plain["losses"]))
    np.testing.assert_allclose(means(losses, count), means(plain["losses"], count), rtol=1e-3)
    assert bool(run.tensor_names(collection="labels")) == labels
    assert bool(run.steps("eval").size) == evaluated
    assert run.tensor_names(collection="gradients")
