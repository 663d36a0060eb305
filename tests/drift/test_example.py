"""The demo of drift works without Fashion-MNIST: with the digits of scikit-learn."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

SCRIPT = """
from examples.drift.demo import ORDINARY, TURNED, turned
from examples.drift.service import build, data, train

trained_on, baseline, requests = data()
model = build()
assert train(model) > 0.9
assert len(requests.x) >= ORDINARY + TURNED
parts = [{image.numpy().tobytes() for image in part.x} for part in data()]
assert not parts[0] & parts[1] and not parts[0] & parts[2] and not parts[1] & parts[2]


def accuracy(x, y):
    return float((model(x).argmax(1) == y).float().mean())


ordinary = accuracy(requests.x, requests.y)
assert ordinary > 0.9
assert accuracy(turned(requests.x), requests.y) < ordinary - 0.05
"""


@pytest.mark.slow
def test_digits_suffice_for_the_requests_of_the_demo(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT,
        env={**os.environ, "FASHION_MNIST": str(tmp_path / "missing")},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
