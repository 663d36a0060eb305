"""Accidents of trainings beside the sweep, in the same world."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil

from tests.flows.chaos.chaos_world import SCRIPT, World
from tests.paths import ROOT
from tests.waiting import until
from vinedresser.processes import marked_processes
from vinedresser.store.reading.reader import open_run
from vinedresser.testing.s3_server import BUCKET

__all__ = ["lose_a_relay_at_its_start", "remove_a_run"]

_HOOKED = ROOT / "tests" / "capture" / "hook" / "s3_training.py"
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
                if "vinedresser.infra.relay" in command and any(name in one for one in command):
                    os.kill(pid, signal.SIGKILL)
                    return True
        return training.poll() is not None

    until(killed, "a relay")
    assert training.wait() == 0
    assert open_run(url).status.state == "finished"
    return True
