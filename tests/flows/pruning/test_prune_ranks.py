"""A pruning whose fine-tuning has two ranks: one prunes and evaluates, both train."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.flows.pruning import pruning_flows
from tests.flows.pruning.pruning_flows import MODULE, prune, records, write
from vinedresser import open_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.usefixtures("shared_prefect")
def test_two_ranks_fine_tune_each_round(
    tmp_path: Path, mlflow_store: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow_store(tmp_path / "runs")
    text = pruning_flows.PRUNE.replace(f"{MODULE}:train", f"{MODULE}:train_together")
    monkeypatch.setattr(pruning_flows, "PRUNE", text.replace("[run]", "[run]\nranks = 2"))
    write(tmp_path)
    code, output = prune(tmp_path)
    assert code == 0, output
    assert len(records(tmp_path / "runs/small")) == 3
    for number in (1, 2):
        run = open_run(tmp_path / f"runs/small/round-{number}")
        assert run.status.state == "finished"
        steps = [run.steps("train", rank=rank).tolist() for rank in (0, 1)]
        assert steps == [list(range(5))] * 2
