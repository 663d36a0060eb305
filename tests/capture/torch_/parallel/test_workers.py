"""Children of a training write nothing into its run, and are not held up by the hook."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader

from tests.capture.torch_.parallel.workers import Features, train_shared
from vinedresser.capture import Hook, SaveConfig, open_run

ALL = dict.fromkeys(("losses", "weights", "outputs", "gradients"), SaveConfig(every=1))


def watched(tmp_path: Path) -> tuple[Hook, nn.Sequential, nn.Module, torch.optim.Optimizer]:
    model, loss = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)), nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return (
        Hook(tmp_path / "run", collections=ALL).watch(model, loss, optimizer),
        model,
        loss,
        optimizer,
    )


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("start", "persistent"),
    [("fork", False), ("fork", True), pytest.param("spawn", True, marks=pytest.mark.slow)],
)
def test_workers_that_run_the_watched_model(start: str, persistent: bool, tmp_path: Path) -> None:
    hook, model, loss, optimizer = watched(tmp_path)
    loader = DataLoader(
        Features(model),
        batch_size=4,
        num_workers=1,
        persistent_workers=persistent,
        multiprocessing_context=start,
        timeout=60,
    )
    processes: set[int] = set()
    for _ in range(2):
        for x, pids in loader:
            processes |= set(pids.tolist())
            optimizer.zero_grad()
            loss(model(x), torch.zeros(4, 1)).backward()
            optimizer.step()
    hook.close()
    assert hook.problems == []
    assert os.getpid() not in processes
    assert len(processes) == (1 if persistent else 2)
    run = open_run(tmp_path / "run")
    assert run.steps(mode=None).tolist() == list(range(8))
    # Outputs in a worker are not captured: those of the training have 4 rows.
    assert run.tensor("outputs/0").value(3).shape == (4, 2)
    assert run.status.state == "finished"


def test_a_forked_process_writes_nothing(tmp_path: Path) -> None:
    hook, model, loss, optimizer = watched(tmp_path)
    loss(model(torch.ones(4, 2)), torch.zeros(4, 1)).backward()
    optimizer.step()
    context = mp.get_context("fork")
    noted = context.Value("i", 0)
    model.share_memory()
    before = next(model.parameters()).detach().clone()
    child = context.Process(target=train_shared, args=(0, model, 3, noted))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert noted.value == child.pid
    # It trains, but is not captured.
    assert not torch.equal(next(model.parameters()), before)
    loss(model(torch.ones(4, 2)), torch.zeros(4, 1)).backward()
    optimizer.step()
    hook.close()
    assert hook.problems == []
    assert open_run(tmp_path / "run").steps(mode=None).tolist() == [0, 1]


@pytest.mark.thorough
def test_a_watched_model_goes_to_a_spawned_process(tmp_path: Path) -> None:
    hook, model, loss, optimizer = watched(tmp_path)
    # Between forward and update, when most hooks are installed.
    value = loss(model(torch.ones(4, 2)), torch.zeros(4, 1))
    model.share_memory()
    noted = mp.get_context("spawn").Value("i", 0)
    mp.spawn(train_shared, (model, 2, noted), nprocs=1)  # type: ignore[attr-defined, no-untyped-call]
    assert noted.value not in (0, os.getpid())
    del value
    loss(model(torch.ones(4, 2)), torch.zeros(4, 1)).backward()
    optimizer.step()
    hook.close()
    assert open_run(tmp_path / "run").steps(mode=None).tolist() == [0]


@pytest.mark.parametrize("what", ["hook", "bound"])
def test_pickling_a_hook_is_refused_with_a_remedy(what: str, tmp_path: Path) -> None:
    with Hook(tmp_path / "run") as hook:
        given: Any = hook if what == "hook" else hook.save
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(given)
