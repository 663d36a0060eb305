"""The command line with runs on S3, and the server of `vinedresser up`."""

from __future__ import annotations

import os
import re
import shlex
import signal
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.capture.hook.s3_training import batch
from tests.cli import command_line
from tests.paths import SCRIPTS
from vinedresser import open_run
from vinedresser.capture import Hook
from vinedresser.errors import ConfigError
from vinedresser.infra.services.servers.standing import bring_up, take_down
from vinedresser.objects import open_storage
from vinedresser.processes import ProcessIdentity, is_alive
from vinedresser.store.collections.schedule import SaveConfig
from vinedresser.store.spool import spools

vinedresser = partial(command_line.vinedresser, code=0)


@pytest.mark.slow
def test_readers_accept_a_url_instead_of_a_path(s3: str, tmp_path: Path) -> None:
    with Hook(f"{s3}/first", collections={"inputs": SaveConfig(every=1)}) as hook:
        for step in range(3):
            hook.step(inputs=batch(step), loss=float("nan") if step == 2 else 1.0)
    with Hook(f"{s3}/second"):
        pass
    table = vinedresser("status", s3).stdout.splitlines()
    assert [line.split()[:3] for line in table[1:]] == [
        ["first", "finished", "3"],
        ["second", "finished", "0"],
    ]
    assert vinedresser("status", f"{s3}/first").stdout.splitlines()[1].startswith("first")
    assert "inputs/batch" in vinedresser("show", f"{s3}/first").stdout
    shown = vinedresser("show", f"{s3}/first", "inputs/batch", "--step", "1").stdout
    assert "256" in shown
    assert "nonfinite" in vinedresser("judge", f"{s3}/first", "--rule", "nonfinite").stdout
    page = str(tmp_path / "compare.html")
    compared = vinedresser("compare", s3, "--output", page).stdout
    assert "first and second differ   first: nothing was captured" in compared
    assert (
        f"{s3}/none: neither a run nor a store"
        in vinedresser("compare", f"{s3}/none", code=2).stderr
    )
    words = ("capture", f"{s3}/first", "--collection", "inputs", "--every", "2")
    assert "is finished, not running" in vinedresser(*words, code=2).stderr
    assert "there is no bucket" in vinedresser("status", "s3://not-made/x", code=2).stderr


@pytest.mark.slow
def test_reconcile_uploads_leftovers_of_a_crash(s3: str) -> None:
    code = (
        "import os, signal\nfrom pathlib import Path\nfrom vinedresser.capture import Hook\n"
        f"hook = Hook('{s3}/run')\nhook.step(loss=1.0)\nhook.flush()\n"
        "relay = hook._run.upload._relay\nos.kill(relay.pid, signal.SIGKILL)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL
    said = vinedresser("reconcile", s3).stdout
    assert re.search(rf"{s3}/run +upload completed", said)
    assert "killed" in vinedresser("status", s3).stdout
    assert "nothing to reconcile" in vinedresser("reconcile", s3).stdout


SCRIPT = """
import sys, time
from vinedresser.capture import Hook
from vinedresser.store.collections.schedule import SaveConfig
import numpy as np
hook = Hook(collections={"inputs": SaveConfig(every=1)})
for step in range(int(sys.argv[1])):
    hook.step(inputs=np.full((64, 64), step), loss=float("nan") if step > 20 else 1 / (1 + step))
    time.sleep(0.02)
print("said by the script")
"""


@pytest.mark.slow
def test_a_script_runs_with_its_run_on_s3(s3: str, tmp_path: Path) -> None:
    (tmp_path / "fit.py").write_text(SCRIPT)
    done = vinedresser("run", "--store", s3, str(tmp_path / "fit.py"), "20")
    assert done.stdout == "said by the script\n"
    assert f"run {s3}/fit-1" in done.stderr
    run = open_run(f"{s3}/fit-1")
    assert (run.status.state, run.status.code, run.info.name) == ("finished", 0, "fit-1")
    assert run.tensor("inputs/batch").value(7).tolist() == [[7] * 64] * 64
    keys = run.storage.list("")
    assert {"launch.json", "supervisor.json", "log.txt", "report.html"} <= set(keys)
    assert run.storage.get("log.txt") == b"said by the script\n"
    assert "second" not in vinedresser("status", s3).stdout
    again = vinedresser("run", "--store", s3, "--name", "fit-1", str(tmp_path / "fit.py"), code=2)
    assert "already holds a run" in again.stderr
    assert spools() == []


@pytest.mark.thorough
def test_a_rule_stops_a_script_whose_run_is_on_s3(s3: str, tmp_path: Path) -> None:
    (tmp_path / "fit.py").write_text(SCRIPT)
    rule = ("--rule", 'nonfinite:severity="stop"')
    words = ("run", "--store", s3, *rule, str(tmp_path / "fit.py"), "3000")
    done = vinedresser(*words, code=3)
    assert "nonfinite" in done.stderr
    run = open_run(f"{s3}/fit-1")
    assert (run.status.state, run.status.rule) == ("stopped", "nonfinite")
    assert {finding.rule for finding in run.findings()} == {"nonfinite"}
    assert spools() == []


@pytest.mark.slow
def test_additional_trainings_of_a_script_are_judged_on_s3(s3: str) -> None:
    script = str(SCRIPTS / "unhooked_training.py")
    words = ("--trainings", "3", "--nan", "2", "--pause", "0.01")
    done = vinedresser("run", "--store", s3, "--rule", "nonfinite", script, *words, code=3)
    first, second = (open_run(f"{s3}/unhooked_training-1{number}") for number in ("", ".2"))
    for run in (first, second):
        assert (run.status.state, run.status.rule) == ("stopped", "nonfinite")
        assert b"<html" in run.storage.get("report.html")
    assert first.status.reason.startswith("unhooked_training-1.2: losses/MSELoss is nan")
    assert (first.findings(), len(second.findings())) == ([], 1)
    assert open_storage(s3).folders() == ["unhooked_training-1", "unhooked_training-1.2"]
    assert f"run {s3}/unhooked_training-1.2" in done.stderr
    assert spools() == []


@pytest.fixture
def no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the server a home of its own; return its data directory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data" / "vinedresser" / "s3"


@pytest.mark.thorough
def test_up_starts_a_server_once_and_down_stops_it(
    no_server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        first = vinedresser("up", "--s3", "--bucket", "mine")
        assert f"in {no_server}" in first.stderr.replace("\n", "")
        for line in first.stdout.splitlines():
            name, _, value = shlex.split(line)[1].partition("=")
            monkeypatch.setenv(name, value)
        storage = open_storage("s3://mine/runs")
        storage.put("key", [b"kept"])
        assert vinedresser("up", "--s3", "--bucket", "mine").stdout == first.stdout
        files = [no_server / "identities.json", no_server.parents[2] / "state/vinedresser/s3.json"]
        assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600, 0o600]
        with pytest.raises(ConfigError, match="an S3 server is already running"):
            bring_up(no_server / "elsewhere")
        running = bring_up()
        assert "stopped the S3 server" in vinedresser("down").stdout
        assert not is_alive(ProcessIdentity(**running.process))
        sockets = (no_server / "sockets.txt").read_text().splitlines()
        assert [place for place in sockets if os.path.lexists(place)] == []
        assert "no servers are running" in vinedresser("down").stdout
        # What was stored, and who may read it, stay.
        again = bring_up()
        monkeypatch.setenv("AWS_ENDPOINT_URL", again.url)
        assert open_storage("s3://mine/runs").get("key") == b"kept"
    finally:
        take_down()
