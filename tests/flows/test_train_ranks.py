"""A training of several ranks of which one fails begins again as a whole."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import vinedresser
from tests.paths import ROOT
from vinedresser import open_run
from vinedresser.store.records import LaunchRecord, read_record

EXAMPLE = ROOT / "examples/ranks/experiment.toml"
EXPERIMENT = f"""
[run]
name = "digits"
command = ["python", "{Path(__file__).with_name("ranks_trainer.py")}"]
total_steps = 20
ranks = 2
parameters = {{ hold = "hold", x = 0.5 }}

[remedy]
times = 0
restarts = 1
resume = "from"

[rules]
preset = "none"
"""


pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("shared_prefect")]


@pytest.mark.slow
def test_ranks_begin_again_from_the_last_checkpoint(
    tmp_path: Path,
    mlflow_store: Callable[[Path], Path],
    mlflow_runs: Callable[[Path], dict[str, Any]],
) -> None:
    mlflow_store(tmp_path / "runs")
    (tmp_path / "experiment.toml").write_text(EXPERIMENT, encoding="utf-8")
    # What counts is the last run.
    vinedresser("train", "experiment.toml", cwd=tmp_path, code=0)
    again = open_run(tmp_path / "runs/digits-restart-1")
    assert again.status.state == "finished"
    assert again.info.parameters["from"].endswith("runs/digits/checkpoints/step-10.pt")
    assert again.info.total_steps == 10
    found = mlflow_runs(tmp_path / "runs")
    assert found["digits"]["tags"]["exit.rank"] == "1"
    assert found["digits"]["tags"]["exit.reason"] == "rank 1 after step 11: ValueError: bad luck"
    assert "exit.rank" not in found["digits-restart-1"]["tags"]


@pytest.mark.slow
def test_a_rank_that_is_killed_while_it_writes_its_part_leaves_the_checkpoint_before(
    tmp_path: Path,
) -> None:
    text = EXPERIMENT.replace("parameters = { ", "parameters = { parts = true, ")
    (tmp_path / "experiment.toml").write_text(text, encoding="utf-8")
    done = vinedresser("train", "experiment.toml", cwd=tmp_path, code=0)
    first, again = (open_run(tmp_path / "runs" / name) for name in ("digits", "digits-restart-1"))
    assert (first.status.state, again.status.state) == ("killed", "finished")
    # Each rank has loaded its own part.
    assert again.info.parameters["from"] == str(tmp_path / "runs/digits/checkpoints/step-10")
    assert again.info.total_steps == 10
    why = "digits: checkpoints/step-15 is not used: step-15_rank_1.npz is cut off"
    assert why in done.stderr


@pytest.mark.slow
def test_the_example_fails_hangs_and_recovers(tmp_path: Path) -> None:
    vinedresser("train", str(EXAMPLE), "--store", "runs", cwd=tmp_path, code=0)
    runs = {path.name: open_run(path) for path in (tmp_path / "runs").glob("ranks-*")}
    # Torch 2.13 now and then hangs in freeing the process group of a rank that has failed.
    assert runs["ranks-failing"].status.state in ("crashed", "stopped")
    assert {name: run.status.state for name, run in runs.items() if name != "ranks-failing"} == {
        "ranks-sound": "finished",
        "ranks-slow": "finished",
        "ranks-failing-restart-1": "finished",
        "ranks-hanging": "stopped",
        "ranks-hanging-restart-1": "finished",
    }
    slow = {found.rule: found.rank for found in runs["ranks-slow"].findings()}
    assert slow["slow_rank"] == 1
    # The resumed ones had the batches that were left.
    steps = {name: len(run.steps("train", rank=0)) for name, run in runs.items()}
    assert steps["ranks-failing-restart-1"] == steps["ranks-sound"] - 60
    sound, again = (
        runs[name].scalars("metrics")["metrics/accuracy"].of("eval").values[0]
        for name in ("ranks-sound", "ranks-failing-restart-1")
    )
    # Without any ink it would be 0.9.
    assert sound > 0.95
    assert again == pytest.approx(sound, abs=0.005)
    assert [one for one in runs["ranks-sound"].findings() if one.severity != "info"] == []
    [found] = [one for one in runs["ranks-hanging"].findings() if one.rule == "stalled_training"]
    assert found.evidence["missing"] == [1]
    assert "break_down" in found.evidence["ranks"]["1"]


# Reaches a host once: on this machine. Then the host is gone.
SSH = """#!/bin/sh
while [ "$1" = -o ]; do shift 2; done
if mkdir "{0}" 2>/dev/null; then shift; exec sh -c "$*"; fi
echo "ssh: connect to host $1 port 22: No route to host" >&2
exit 255
"""


@pytest.fixture
def lost_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The experiment on two hosts, of which one, an address for documentation, is reached once."""
    program = tmp_path / "bin/ssh"
    program.parent.mkdir()
    program.write_text(SSH.format(tmp_path / "reached"), encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    hosts = 'ranks = 2\nlauncher = "torchrun"\nhosts = ["127.0.0.1", "192.0.2.7"]'
    return EXPERIMENT.replace("ranks = 2", hosts)


@pytest.mark.slow
def test_a_restart_without_one_of_its_hosts_fails_with_the_error_of_ssh(
    tmp_path: Path, lost_host: str
) -> None:
    (tmp_path / "experiment.toml").write_text(lost_host, encoding="utf-8")
    vinedresser("train", "experiment.toml", cwd=tmp_path, code=1)
    runs = {path.name: open_run(path).status for path in (tmp_path / "runs").glob("digits*")}
    assert {name: one.state for name, one in runs.items()} == {
        "digits": "crashed",
        "digits-restart-1": "crashed",
    }
    assert runs["digits"].reason == "rank 1 after step 11: ValueError: bad luck"
    assert runs["digits-restart-1"].reason == (
        "torchrun could not start the ranks: "
        "ssh: connect to host 192.0.2.7 port 22: No route to host"
    )


@pytest.mark.slow
def test_a_restart_without_one_of_its_hosts_has_fewer_ranks_if_the_script_allows_it(
    tmp_path: Path,
    lost_host: str,
    mlflow_store: Callable[[Path], Path],
    mlflow_runs: Callable[[Path], dict[str, Any]],
) -> None:
    mlflow_store(tmp_path / "runs")
    text = lost_host.replace("ranks = 2", "ranks = 2\nmin_ranks = 1")
    (tmp_path / "experiment.toml").write_text(text, encoding="utf-8")
    done = vinedresser("train", "experiment.toml", cwd=tmp_path, code=0)
    again = open_run(tmp_path / "runs/digits-restart-1")
    assert again.status.state == "finished"
    assert (again.info.world_size, len(again.steps("train"))) == (1, 10)
    launch = read_record(again.storage, LaunchRecord)
    assert launch is not None
    assert (launch.ranks, launch.hosts) == (1, ["127.0.0.1"])
    fewer = "1 of 2 ranks: host 192.0.2.7 does not answer"
    assert f"digits begins again with {fewer}" in done.stderr
    told = f"begins digits again from checkpoints/step-10.pt of digits, with {fewer}"
    assert told in done.stdout
    assert told in Path(again.path, "report.html").read_text(encoding="utf-8")
    assert mlflow_runs(tmp_path / "runs")["digits-restart-1"]["tags"]["restart.ranks"] == fewer
    status = vinedresser("status", "runs/digits-restart-1", cwd=tmp_path, code=0)
    assert told in status.stdout
