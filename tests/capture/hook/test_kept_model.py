"""The weights of a training that is to keep its model, as the best trial of a sweep."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.paths import ROOT
from vinedresser.testing.runs import start_run

SCRIPT = """
import sys
import torch
from vinedresser.capture import Hook

torch.manual_seed(0)
net = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
hook = Hook().watch(net, optimizer=optimizer)
for step in range(5):
    optimizer.zero_grad()
    net(torch.randn(4, 3)).square().mean().backward()
    optimizer.step()
torch.save(net.state_dict(), sys.argv[1])
print(torch.rand(1).item())
if len(sys.argv) > 2:
    raise ValueError("after the last step")
"""


def train(folder: Path, *arguments: str, keeps: bool = True) -> tuple[Path, str]:
    """Train in a launched run; return its directory and what the script printed."""
    run = folder / f"run-{len([*folder.iterdir()])}"
    start_run(run)
    variables = {"PATH": "", "PYTHONPATH": str(ROOT), "VINEDRESSER_RUN": str(run)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder / "own.pt"), *arguments],
        env=variables | ({"VINEDRESSER_KEEP_MODEL": "1"} if keeps else {}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == len(arguments), done.stderr
    return run, done.stdout


@pytest.mark.thorough
def test_the_last_weights_are_kept_and_the_training_is_the_same(tmp_path: Path) -> None:
    run, printed = train(tmp_path)
    kept = load_file(run / "checkpoints" / "last" / "step-5.safetensors")
    own = torch.load(tmp_path / "own.pt", weights_only=True)
    assert kept.keys() == own.keys()
    assert all(torch.equal(kept[name], own[name]) for name in own)
    other, again = train(tmp_path, keeps=False)
    assert not (other / "checkpoints").exists()
    assert again == printed
    same = torch.load(tmp_path / "own.pt", weights_only=True)
    assert all(torch.equal(same[name], own[name]) for name in own)


@pytest.mark.thorough
def test_a_training_that_fails_keeps_no_model(tmp_path: Path) -> None:
    run, _ = train(tmp_path, "fails")
    assert not (run / "checkpoints").exists()
