"""Killing a process with SIGKILL while it writes snapshots."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vinedresser.objects import LocalStorage
from vinedresser.snapshots.reading import Snapshot, list_snapshots

_WRITER = """
import sys
from dataclasses import replace
from tests.snapshots.test_files import RECORD, folder
from pathlib import Path
from vinedresser.snapshots.trees import HostArray

kept = folder(Path(sys.argv[1]), keep=2)
tensors = {"a": HostArray("U8", (1 << 20,), bytes(1 << 20))}
step = 0
while True:
    kept.write(replace(RECORD, step=step, reason="periodic"), tensors)
    step += 1
    print(step, flush=True)
"""


@pytest.mark.thorough
def test_a_snapshot_is_complete_or_is_none(tmp_path: Path) -> None:
    moments = random.Random(5)
    found = 0
    for turn in range(12):
        place = tmp_path / str(turn)
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(place)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        # The first snapshot is written; the next ones are being written.
        assert writer.stdout.readline() == "1\n"
        time.sleep(moments.uniform(0, 0.02))
        writer.kill()
        writer.communicate()
        storage, faults = LocalStorage(place), list[str]()
        for record in list_snapshots(storage, faults):
            assert Snapshot(str(place), storage, record).tensors["a"].shape == (1 << 20,)
            found += 1
        assert faults == []
    assert found >= 12
