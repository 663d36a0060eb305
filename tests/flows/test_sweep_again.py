"""The best trial of a sweep trains again with other seeds, for real."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.flows.test_sweep_flow import configurations, sweep, write

MakeStore = Callable[[Path], Path]

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("shared_prefect")]


@pytest.mark.slow
def test_the_spread_of_the_best_trial_is_told(
    tmp_path: Path, mlflow_store: MakeStore, mlflow_runs: Callable[[Path], dict[str, Any]]
) -> None:
    mlflow_store(tmp_path / "runs")
    more = 'again = [3, 4]\nretries = 0\nregister = "net"'
    write(tmp_path, "x = [0.5, 0.9]\nkind = ['good', 'crash']", more=more)
    # A user's own file.
    (tmp_path / "runs" / "search").mkdir(parents=True)
    own = tmp_path / "runs" / "search" / "experiment.toml"
    own.write_text("# mine", encoding="utf-8")
    code, output = sweep(tmp_path)
    # The script watches no model.
    assert code == 1, output
    unregistered = "trial-0002, the best trial, is not registered as net: it has no logged model "
    assert f"vinedresser: {unregistered}" in output
    early = re.findall("could not be registered as net: it has no logged model", output)
    assert len(early) == 1, "after the first finished trial"
    assert own.read_text(encoding="utf-8") == "# mine"
    assert "best             trial-0002: accuracy 0.9 with x 0.9, kind good" in output
    assert "again            trial-0002 with 2 other seeds: accuracy 0.9 ± 0 (0.9 to 0.9)" in output
    assert "trial-0002 again with seed 4" in output
    tried = configurations(tmp_path / "runs" / "search")
    assert [(one["x"], one["kind"], one["seed"]) for one in tried[4:]] == [
        (0.9, "good", 3),
        (0.9, "good", 4),
    ]
    parent = mlflow_runs(tmp_path / "runs")["search"]
    assert {"experiment.masked.toml", "sweep.html"} <= {*parent["files"]}
    tags = parent["tags"]
    assert tags["sweep.registered"].startswith(unregistered)
    assert tags["sweep.best.again"] == "0.9 ± 0 (0.9 to 0.9)"
    page = (tmp_path / "runs" / "search" / "sweep.html").read_text(encoding="utf-8")
    assert "with other seeds 0.9 ± 0 (0.9 to 0.9)" in page
    # Nothing is left to do.
    code, output = sweep(tmp_path, "--resume")
    assert code == 1, output
    assert len(configurations(tmp_path / "runs" / "search")) == 6
