"""Launchers and hosts that cannot be used are refused before anything starts, in one line."""

from __future__ import annotations

import json
import signal
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from vinedresser.errors import ConfigError, CorruptData, LaunchError
from vinedresser.infra.supervise.hosts.commands import refuse_launcher
from vinedresser.objects import LocalStorage
from vinedresser.processes import this_process
from vinedresser.store.records import HostOrders, HostReport, LaunchSettings, read_record
from vinedresser.tasks.config.experiment import load_experiment


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"launcher": "slrum"}, ("launcher", "slrum", "slurm")),
        ({"launcher": {"name": "slurm", "option": []}}, ("launcher", "option", "options")),
        ({"launcher": {"name": "slurm", "options": "-p gpu"}}, ("options", "list", "-p gpu")),
        ({"launcher": {"name": "mpi", "address": "x"}}, ("address", "mpi", "remove")),
        ({"launcher": "kubernetes"}, ("kubernetes", "manifest")),
        ({"hosts": 2}, ("hosts", "local", "launcher")),
        ({"launcher": "mpi", "hosts": 0}, ("hosts", "at least 1")),
        ({"launcher": "torchrun", "hosts": 2}, ("hosts", "torchrun", "names")),
        ({"launcher": "ray", "hosts": ["a", "b"]}, ("hosts", "ray", "number")),
        ({"launcher": "mpi", "hosts": ["a", "a"]}, ("hosts", "twice")),
        ({"launcher": "mpi", "hosts": ["-oProxyCommand=x", "b"]}, ("hosts", "names of hosts")),
        ({"launcher": "slurm", "hosts": 2, "ranks": 3}, ("ranks", "3", "2 hosts")),
        ({"launcher": "slurm", "hosts": 2, "gpus": 1}, ("gpus", "gpus_per_rank")),
        ({"ranks": 0}, ("ranks", "from 1 to 1024", "not 0")),
        ({"ranks": 1025}, ("ranks", "from 1 to 1024", "not 1025")),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(
    settings: dict[str, Any], facts: tuple[str, ...]
) -> None:
    with pytest.raises(ValueError, match=facts[0]) as refused:
        LaunchSettings(**{"ranks": 2, **settings})
    assert all(fact in str(refused.value) for fact in facts)


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"launcher": "mpi"}, ("launcher", "mpirun", "PATH")),
        ({"launcher": "slurm"}, ("launcher", "sbatch", "PATH")),
        ({"launcher": {"name": "kubernetes", "manifest": "a.yaml"}}, ("launcher", "kubectl")),
        (
            {"launcher": "torchrun", "hosts": ["127.0.0.1", "no-such-host.invalid"]},
            ("hosts", "no-such-host.invalid"),
        ),
    ],
)
def test_what_is_missing_here_is_named(
    settings: dict[str, Any],
    facts: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LaunchError) as refused:
        refuse_launcher(LaunchSettings(ranks=2, **settings))
    assert all(fact in str(refused.value) for fact in facts)


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        (HostOrders, {"orders": [["run", "rm"]]}),
        (HostOrders, {"orders": [[]]}),
        (HostOrders, {"orders": [["signal", 4711]]}),
        (HostOrders, {"orders": [["kill", "all"]]}),
        (HostOrders, {"workers": ["$(id):1"]}),
        (HostOrders, {"time": -1.0}),
        (HostReport, {"told": 1}),
        (HostReport, {"ranks": [{"code": "0"}]}),
        (HostReport, {"stacks": [{"state": "running", "frames": [["a"]]}]}),
        (HostReport, {"process": {"pid": "1"}}),
    ],
)
def test_a_record_of_something_else_is_not_obeyed(
    kind: type[HostOrders | HostReport], damage: dict[str, Any], tmp_path: Path
) -> None:
    report = {"process": asdict(this_process()), "sign": 1, "address": "", "ports": [], "cores": 1}
    storage = LocalStorage(tmp_path)
    storage.put("record.json", [json.dumps(report | damage).encode()])
    with pytest.raises(CorruptData):
        read_record(storage, kind, key="record.json")
    orders = {"orders": [["signal", signal.SIGRTMIN + 1], ["end_peers"], ["stacks"], ["kill"]]}
    storage.put("record.json", [json.dumps(report | orders).encode()])
    assert read_record(storage, kind, key="record.json") is not None


@pytest.mark.parametrize(
    ("lines", "facts"),
    [
        ('store = "s3://bucket/runs"', ("run.launcher", "s3://bucket/runs")),
        ('runner = "dask"', ("run.launcher", "run.runner")),
        ("preflight = true", ("run.preflight",)),
        ('environment = {API_KEY = "abc123def456ghi789jkl"}', ("API_KEY", "environment_from")),
    ],
)
def test_a_file_with_what_hosts_cannot_do_is_refused(
    lines: str, facts: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "train.py").touch()
    path = tmp_path / "experiment.toml"
    path.write_text(
        f"""
        [run]
        name = "x"
        command = ["python", "train.py"]
        launcher = "slurm"
        ranks = 2
        hosts = 2
        {lines}
        """,
        encoding="utf-8",
    )
    with pytest.raises(ConfigError) as refused:
        load_experiment(path)
    assert str(path) in str(refused.value)
    assert all(fact in str(refused.value) for fact in facts)
