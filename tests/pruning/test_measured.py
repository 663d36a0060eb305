"""Filters ranked by what a hook has captured of a training."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.pruning.networks import EXAMPLE, batches, build, losses
from vinedresser import open_run
from vinedresser.capture import Hook, SaveConfig
from vinedresser.pruning import PruningError, prune
from vinedresser.store.reading.reader import Run


def captured(model: nn.Module, path: Path, *collections: str) -> Run:
    """Return the run of a training that changes nothing, in evaluation mode."""
    saves = dict.fromkeys(collections, SaveConfig(every=1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    model.eval()
    with Hook(path, collections=saves) as hook:
        hook.watch(model, optimizer=optimizer)
        with hook.mode("train"):
            for x, y in batches():
                optimizer.zero_grad()
                functional.cross_entropy(model(x), y).backward()
                optimizer.step()
    return open_run(path)


@pytest.mark.thorough
@pytest.mark.parametrize("criterion", ["taylor_activation", "taylor_signed", "taylor_weight"])
def test_a_run_ranks_like_its_batches(criterion: str, tmp_path: Path) -> None:
    model = build()
    run = captured(model, tmp_path / "run", "input_taylor", "weight_taylor")
    (expected,) = prune(build(), EXAMPLE, 6, criterion=criterion, losses=losses).plans
    (found,) = prune(model, EXAMPLE, 6, criterion=criterion, losses=run).plans
    assert found.tensors == expected.tensors


def test_a_run_without_what_is_needed_is_refused(tmp_path: Path) -> None:
    model = build()
    run = captured(model, tmp_path / "run", "input_taylor")
    with pytest.raises(PruningError, match="no weight_taylor of this model; capture the coll"):
        prune(model, EXAMPLE, 6, criterion="taylor_weight", losses=run)


def test_a_run_of_another_model_is_refused(tmp_path: Path) -> None:
    run = captured(build(), tmp_path / "run", "weight_taylor")
    smaller = prune(build(), EXAMPLE, 6).model
    with pytest.raises(PruningError, match=r"was measured with \d+ channels and has \d+"):
        prune(smaller, EXAMPLE, 2, criterion="taylor_weight", losses=run)


def test_values_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    model = build()
    with torch.no_grad():
        next(model.parameters()).fill_(float("inf"))
    run = captured(model, tmp_path / "run", "weight_taylor")
    with pytest.raises(PruningError, match=r"weight_taylor/.*, step 0: not finite"):
        prune(build(), EXAMPLE, 2, criterion="taylor_weight", losses=run)
