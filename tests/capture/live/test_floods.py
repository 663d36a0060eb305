"""Many connections at once take nothing from a training."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from tests.capture.live.live_training import listens
from tests.capture.live.test_agent import connected
from tests.waiting import until

TRAINING = """
import os, resource, sys, time

from vinedresser.capture import Hook

resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400))
path = sys.argv[1]
with Hook(path, live=True) as hook:
    while not os.path.exists(f"{path}.over"):
        hook.step(loss=1.0)
        # As a data loader does: files, pipes and sockets.
        files = [open(os.devnull) for _ in range(50)]
        for file in files:
            file.close()
        time.sleep(0.001)
"""


@pytest.mark.thorough
def test_a_flood_of_connections_leaves_the_training_its_descriptors(tmp_path: Path) -> None:
    script, path = tmp_path / "train.py", tmp_path / "run"
    script.write_text(TRAINING)
    command = [sys.executable, str(script), str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        until(lambda: listens(path), "the training begins")

        def flood() -> None:
            for _ in range(5000):
                # The queue is full: others come first.
                with suppress(BlockingIOError), connected(path):
                    pass

        threads = [threading.Thread(target=flood) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        Path(f"{path}.over").touch()
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
