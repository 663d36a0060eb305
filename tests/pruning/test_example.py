"""The example of pruning, on the digits that replace Fashion-MNIST where it is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

ROUND = """
import runpy

import torch
from safetensors.torch import load_file

from vinedresser.capture import Hook, open_run
from vinedresser.pruning import prune

functions = runpy.run_path({script!r})
model = functions["build"]()
model.load_state_dict(load_file("weights.safetensors"))
before = functions["evaluate"](model)
assert before > 0.6, before  # ten classes: guessing gives 0.1
pruned = prune(
    model, functions["example"](), "15%", criterion="taylor_activation", losses=functions["losses"]
)
assert pruned.after.parameters < 0.8 * pruned.before.parameters
damaged = functions["evaluate"](pruned.model)
with Hook("runs/round-1") as hook:
    functions["train"](pruned.model, hook)
    path = hook.path
assert functions["evaluate"](pruned.model) >= damaged
assert len(open_run(path).steps("train")) == 10
"""


def run(folder: Path, *arguments: str) -> str:
    """Run Python in a folder; return what it printed."""
    environment = {**os.environ, "FASHION_MNIST": str(folder / "missing")}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_network_is_trained_pruned_and_fine_tuned(tmp_path: Path) -> None:
    script = ROOT / "examples" / "pruning" / "train.py"
    printed = run(tmp_path, str(script), "--epochs", "6")
    assert printed.startswith("accuracy 0.")
    run(tmp_path, "-c", ROUND.format(script=str(script)))
