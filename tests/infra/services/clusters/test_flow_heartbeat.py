"""A flow's heartbeat in a store: watchers notice when it stops, and only then."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest

from vinedresser.errors import StoreError
from vinedresser.infra.services.clusters import flow_heartbeat
from vinedresser.infra.services.clusters.flow_heartbeat import beat, watch_flow
from vinedresser.objects import LocalStorage

FLOW = """
import sys
import time

from vinedresser.infra.services.clusters import flow_heartbeat

flow_heartbeat._EVERY = 0.1
with flow_heartbeat.beat(sys.argv[1]):
    print("begun", flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for heartbeats ten times a second, and miss them after two seconds."""
    monkeypatch.setattr(flow_heartbeat, "_EVERY", 0.1)
    monkeypatch.setattr(flow_heartbeat, "_PATIENCE", 2.0)


@pytest.mark.thorough
def test_a_killed_flow_is_noticed(tmp_path: Path) -> None:
    heard: SimpleQueue[str] = SimpleQueue()
    command = [sys.executable, "-c", FLOW, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as flow:
        assert flow.stdout is not None
        assert flow.stdout.readline() == "begun\n"
        with watch_flow(tmp_path, heard.put):
            # For longer than a flow may be silent.
            with pytest.raises(Empty):
                heard.get(timeout=4)
            flow.kill()
            assert heard.get(timeout=60) == "its flow has had no heartbeat for 2 s"
    assert heard.empty()


@pytest.mark.thorough
def test_a_store_that_cannot_be_read_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = threading.Semaphore(0)

    def away(*_: object) -> bytes:
        looks.release()
        raise StoreError("the store is away")

    with beat(tmp_path):
        pass
    heard: SimpleQueue[str] = SimpleQueue()
    monkeypatch.setattr(flow_heartbeat, "_PATIENCE", 0.2)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(LocalStorage, "get", away)
        with watch_flow(tmp_path, heard.put):
            for _ in range(10):
                assert looks.acquire(timeout=60)
            assert heard.empty()
            # It is there again, and the flow says nothing.
            meanwhile.undo()
            assert heard.get(timeout=60)
