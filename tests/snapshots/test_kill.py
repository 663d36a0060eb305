"""Killing a process with SIGKILL while it writes snapshots."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tests.waiting import until
from vinedresser.objects import LocalStorage
from vinedresser.processes import identify
from vinedresser.snapshots.reading import Snapshot, list_snapshots

# Each folder has a process of its own, forked from one that has loaded what they need.
_WRITERS = """
import os, sys
from dataclasses import replace
from tests.snapshots.test_files import RECORD, folder
from pathlib import Path
from vinedresser.snapshots.trees import HostArray

tensors = {"a": HostArray("U8", (1 << 20,), bytes(1 << 20))}
for place in sys.argv[1:]:
    writer = os.fork()
    if not writer:
        kept = folder(Path(place), keep=2)
        step = 0
        while True:
            kept.write(replace(RECORD, step=step, reason="periodic"), tensors)
            step += 1
            print(os.getpid(), step, flush=True)
    os.waitpid(writer, 0)
"""


def gone(pid: int) -> bool:
    return identify(pid) is None


@pytest.mark.thorough
def test_a_snapshot_is_complete_or_is_none(tmp_path: Path) -> None:
    moments = random.Random(5)
    places = [tmp_path / str(turn) for turn in range(12)]
    found = 0
    with subprocess.Popen(
        [sys.executable, "-c", _WRITERS, *map(str, places)], stdout=subprocess.PIPE, text=True
    ) as writers:
        assert writers.stdout is not None
        for place in places:
            # The first snapshot is written; the next ones are being written.
            writer = next(pid for pid, step in map(str.split, writers.stdout) if step == "1")
            time.sleep(moments.uniform(0, 0.02))
            os.kill(int(writer), signal.SIGKILL)
            until(partial(gone, int(writer)), "its end")
            storage, faults = LocalStorage(place), list[str]()
            for record in list_snapshots(storage, faults):
                assert Snapshot(str(place), storage, record).tensors["a"].shape == (1 << 20,)
                found += 1
            assert faults == []
    assert found >= 12
