"""Accidents of trainings beside the sweep, in the same world."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil

from tests.flows.chaos.chaos_world import SCRIPT, World
from tests.paths import ROOT
from tests.waiting import until
from vinedresser.processes import marked_processes, processes_with
from vinedresser.store.reading.reader import open_run
from vinedresser.testing.s3_server import BUCKET

__all__ = ["begin_under_load", "kill_an_up", "lose_a_relay_at_its_start", "remove_a_run"]

_HOOKED = ROOT / "tests" / "capture" / "hook" / "s3_training.py"
# Processes that keep the machine busy, and seconds after which they end by themselves.
_LOAD, _BUSY = 20, 600
_SPIN = """
import sys, time
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    pass
"""
_EXPERIMENT = """
[run]
name = "removed"
command = ["python", "{script}"]
store = "runs"
parameters = {{ x = 0.1, epochs = 9000, pause = 0.2 }}

[rules.nonfinite]

[tracking]
uri = "{mlflow}"
experiment = "{name}"
"""


def remove_a_run(world: World, _: random.Random) -> bool:
    """Remove the directory of a run under its flow, which says so and ends it."""
    world.backends.wait()
    folder = Path(tempfile.mkdtemp(prefix="removed-", dir=world.folder))
    text = _EXPERIMENT.format(script=SCRIPT, mlflow=world.tracking_uri, name=folder.name)
    (folder / "experiment.toml").write_text(text, encoding="utf-8")
    flow = world.begin("train", str(folder / "experiment.toml"), "--store", str(folder / "runs"))
    run = folder / "runs" / "removed"
    until(lambda: list(run.glob("index/0/*.json")) or flow.poll() is not None, "training")

    def gone() -> bool:
        # Its writers may add files meanwhile.
        subprocess.run(["rm", "-rf", run], check=False, stderr=subprocess.DEVNULL)
        return not run.exists()

    until(gone, "removal")
    assert flow.wait() == 1
    assert not run.exists()
    assert world.mlflow_runs(folder.name) == {"removed": "KILLED"}
    return True


def lose_a_relay_at_its_start(world: World, draw: random.Random) -> bool:
    """Kill the relay of a hook that is being created; the training continues."""
    world.backends.wait()
    name = f"hooked-{draw.randrange(10**9)}"
    url = f"s3://{BUCKET}/{name}"
    environment = {**os.environ, **world.marker, "PYTHONPATH": str(ROOT)}
    training = subprocess.Popen([sys.executable, str(_HOOKED), url, "3", "0"], env=environment)

    def killed() -> bool:
        for pid in marked_processes("=".join(*world.marker.items())):
            with suppress(psutil.Error, ProcessLookupError):
                command = psutil.Process(pid).cmdline()
                if "vinedresser.infra.supervise.relay" in command and any(
                    name in one for one in command
                ):
                    os.kill(pid, signal.SIGKILL)
                    return True
        return training.poll() is not None

    until(killed, "a relay")
    assert training.wait() == 0
    assert open_run(url).status.state == "finished"
    return True


def _state(world: World) -> dict[str, str]:
    """Return the environment of another user, with nothing prepared."""
    home = tempfile.mkdtemp(prefix="home-", dir=world.folder)
    folders = {"XDG_STATE_HOME": f"{home}/state", "XDG_DATA_HOME": f"{home}/data"}
    return {**os.environ, **world.marker, **folders, "PREFECT_HOME": f"{home}/client"}


def kill_an_up(world: World, draw: random.Random) -> bool:
    """Kill `vinedresser up` while it starts; `down` ends what it has started."""
    environment = _state(world)

    def command(*words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "vinedresser", *words],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )

    def servers() -> list[int]:
        mark = environment["XDG_STATE_HOME"]
        return [
            *processes_with(
                lambda one: one.get("XDG_STATE_HOME") == mark and "VINEDRESSER_UP" in one
            )
        ]

    with command("up", "--port", "0") as up:
        until(lambda: servers() or up.poll() is not None, "a server")
        time.sleep(draw.uniform(0.0, 20.0))
        up.kill()
    with command("down") as down:
        assert down.stdout is not None
        assert "stopped Prefect" in down.stdout.read()
    until(lambda: not servers(), "the end of all servers")
    return True


def begin_under_load(world: World, _: random.Random) -> bool:
    """Begin the first flow of a user in a new store while twenty processes want the two cores."""
    environment = _state(world)
    folder = Path(tempfile.mkdtemp(prefix="loaded-", dir=world.folder))
    text = _EXPERIMENT.format(script=SCRIPT, mlflow="sqlite:///new.db", name=folder.name)
    text = text.replace("epochs = 9000", "epochs = 2")
    (folder / "experiment.toml").write_text(text, encoding="utf-8")
    busy = [subprocess.Popen([sys.executable, "-c", _SPIN, f"{_BUSY}"]) for _ in range(_LOAD)]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "vinedresser", "train", "experiment.toml"],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        for one in busy:
            one.kill()
            one.wait()
    assert done.returncode == 0, done.stdout + done.stderr
    return True
