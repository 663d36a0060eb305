"""Changes are tried with LBFGS, which calls a closure several times in each step."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)

from tests.replay.test_script import HEAD, again, trained
from vinedresser.capture import Hook
from vinedresser.replay.batch import Batch
from vinedresser.replay.stepping import replay
from vinedresser.replay.what_if.trying import what_if
from vinedresser.snapshots.reading import open_snapshot
from vinedresser.snapshots.settings import SnapshotSettings

_BEGIN, _STEPS = 3, 10
# More than this needs, so that the result does not depend on the load of the machine.
_SECONDS = 600.0

# The same training in a script, which says the loss of each step.
SCRIPT = (
    HEAD
    + """
made = torch.Generator().manual_seed(1)
rows = torch.randn(64, 6, generator=made)
wanted = torch.sin(rows[:, :1]) + 0.1 * torch.randn(64, 1, generator=made)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.LBFGS(model.parameters(), lr=2.9, max_iter=4)
hook = Hook("runs/run", snapshots=SnapshotSettings(every=3, keep=9))
hook.watch(model, optimizer=optimizer)

def closure():
    optimizer.zero_grad()
    loss = F.mse_loss(model(rows), wanted)
    loss.backward()
    return loss

losses = [float(optimizer.step(closure).detach()) for _ in range(14)]
hook.close()
open("losses.txt", "w").write(f"{losses[12]:.4g}")
"""
)


def data() -> tuple[Tensor, Tensor]:
    """Return rows [64, 6] and what is to be learned of them, [64, 1]."""
    made = torch.Generator().manual_seed(1)
    rows = torch.randn(64, 6, generator=made)
    return rows, torch.sin(rows[:, :1]) + 0.1 * torch.randn(64, 1, generator=made)


def built() -> tuple[nn.Module, torch.optim.Optimizer]:
    """Build the model, and an optimizer whose learning rate is too high."""
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    return model, torch.optim.LBFGS(model.parameters(), lr=2.9, max_iter=4)


def taken(model: nn.Module, optimizer: torch.optim.Optimizer, rows: Tensor) -> Any:
    """Take a step, and return the loss before it."""

    def closure() -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(model(rows), data()[1])
        loss.backward()
        return loss

    return optimizer.step(closure)


def factory() -> Any:
    """Build the training for a replay."""
    model, optimizer = built()

    def step(batch: Batch) -> Any:
        return taken(model, optimizer, batch.args[0])

    return model, optimizer, step


def losses(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> list[float]:
    """Train, and return the loss before each step."""
    return [float(taken(model, optimizer, data()[0]).detach()) for _ in range(steps)]


@pytest.mark.thorough
def test_the_trials_are_the_training_and_another_rate_cures_it(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, optimizer = built()
    with Hook(tmp_path / "run", snapshots=SnapshotSettings(every=3, keep=9)) as hook:
        hook.watch(model, optimizer=optimizer)
        losses(model, optimizer, _BEGIN)
        plain = deepcopy(model.state_dict()), deepcopy(optimizer.state_dict())
        expected = losses(model, optimizer, _STEPS)
    replayed = replay(
        open_snapshot(tmp_path / "run" / "snapshots" / f"step-{_BEGIN}"), f"{__name__}:factory"
    )
    assert replayed.comparison.exact
    found = what_if(replayed, steps=_STEPS, seconds=_SECONDS)
    assert found.unchanged.losses == expected
    assert found.symptom.startswith("the loss rises")
    cure = next(one for one in found.cures if "0.29 instead of 2.9" in one.change)
    model, optimizer = built()
    model.load_state_dict(plain[0])
    optimizer.load_state_dict(plain[1])
    optimizer.param_groups[0]["lr"] = 0.29
    assert cure.course.losses == pytest.approx(losses(model, optimizer, _STEPS), rel=1e-4)


@pytest.mark.slow
def test_in_the_script_that_trained(tmp_path: Path) -> None:
    folder = trained(tmp_path, SCRIPT)
    last = folder.joinpath("losses.txt").read_text(encoding="utf-8")
    told = again(folder, _BEGIN, "--what-if", "--steps", str(_STEPS), "--seconds", "500")
    assert f"what if: {_STEPS} steps from here, the same batch each time\n" in told
    # As in the training itself.
    assert f"unchanged: loss {last}\n" in told
    assert "tried: learning rate 0.29 instead of 2.9 cures it" in told
