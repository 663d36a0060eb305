"""The example: a boosted class, a kill, the same final weights, a damaged record."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_example_does_what_it_says() -> None:
    command = [sys.executable, "-m", "examples.s3_digits.demo"]
    demo = subprocess.run(  # noqa: PLW1510 (its output explains a failure)
        command, cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert ": boost.8 1 → 40, since classes not learned" in demo.stdout
    assert ": boost.8 40 → 1, since classes that were not learned" in demo.stdout
    assert "\nkilled\n" in demo.stdout
    assert "/3/part-00000.tfrecord: record 91 at byte 24752: the checksum" in demo.stdout
    assert demo.stdout.count("final weights are the same") == 2
