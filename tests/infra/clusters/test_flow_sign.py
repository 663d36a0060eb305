"""A flow's signs of life in a store: who watches for them hears when they end, and only then."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest

from vinedresser.errors import StoreError
from vinedresser.infra.clusters import flow_sign
from vinedresser.infra.clusters.flow_sign import gives_signs, watches_for_signs
from vinedresser.store.storage import LocalStorage

FLOW = """
import sys
import time

from vinedresser.infra.clusters import flow_sign

flow_sign._EVERY = 0.1
with flow_sign.gives_signs(sys.argv[1]):
    print("begun", flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have signs looked for ten times a second, and missed after two seconds."""
    monkeypatch.setattr(flow_sign, "_EVERY", 0.1)
    monkeypatch.setattr(flow_sign, "_PATIENCE", 2.0)


def test_a_flow_that_is_killed_is_missed(tmp_path: Path) -> None:
    heard: SimpleQueue[str] = SimpleQueue()
    command = [sys.executable, "-c", FLOW, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as flow:
        assert flow.stdout is not None
        assert flow.stdout.readline() == "begun\n"
        with watches_for_signs(tmp_path, heard.put):
            # For longer than a flow may be silent.
            with pytest.raises(Empty):
                heard.get(timeout=4)
            flow.kill()
            assert heard.get(timeout=60) == "its flow has given no sign of life for 2 s"
    assert heard.empty()


def test_a_store_that_cannot_be_read_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = threading.Semaphore(0)

    def away(*_: object) -> bytes:
        looks.release()
        raise StoreError("the store is away")

    with gives_signs(tmp_path):
        pass
    heard: SimpleQueue[str] = SimpleQueue()
    monkeypatch.setattr(flow_sign, "_PATIENCE", 0.2)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(LocalStorage, "get", away)
        with watches_for_signs(tmp_path, heard.put):
            for _ in range(10):
                assert looks.acquire(timeout=60)
            assert heard.empty()
            # It is there again, and the flow says nothing.
            meanwhile.undo()
            assert heard.get(timeout=60)
