"""`vinedresser up` that is killed while it starts a server, and what it finds after a crash."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.waiting import until
from vinedresser.infra.catalog.flow_records import FlowRecord
from vinedresser.infra.catalog.left_stores import left_stores
from vinedresser.infra.catalog.run_notes import RunNote
from vinedresser.infra.catalog.state_folder import state_folder
from vinedresser.infra.catalog.stores import private_state
from vinedresser.infra.services.servers import bring_up_prefect, take_down, take_down_prefect
from vinedresser.infra.services.servers.note import opened_note
from vinedresser.objects import LocalStorage
from vinedresser.processes import kill_with, processes_with, this_process
from vinedresser.store.records import TrackingRecord, write_record

# Starts servers, as `vinedresser up` does.
UP = """
from vinedresser.infra.services.servers import {0}
{0}(port=0)
"""


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    # Marks all processes of a test.
    monkeypatch.setenv("TEST_OF_UP", str(tmp_path))
    yield
    kill_with(lambda environment: environment.get("TEST_OF_UP") == str(tmp_path))


def started(tmp_path: Path) -> list[int]:
    """Return the processes of the servers."""
    return [
        *processes_with(
            lambda one: one.get("TEST_OF_UP") == str(tmp_path) and "VINEDRESSER_UP" in one
        )
    ]


def killed_up(tmp_path: Path, function: str) -> None:
    """Kill `up` as soon as its server's process exists."""
    with subprocess.Popen([sys.executable, "-c", UP.format(function)]) as up:
        until(lambda: started(tmp_path) or up.poll() is not None, "a server")
        up.send_signal(signal.SIGKILL)


@pytest.mark.parametrize(
    "function",
    ["bring_up_prefect", pytest.param("bring_up", marks=pytest.mark.thorough)],
)
def test_a_server_of_a_killed_up_is_taken_down(tmp_path: Path, function: str) -> None:
    # A command with the same words, which has nothing to do with it.
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "server"])
    try:
        killed_up(tmp_path, function)
        down = take_down_prefect if function == "bring_up_prefect" else take_down
        assert down() is not None
        until(lambda: not started(tmp_path), "its end")
        assert bystander.poll() is None
        assert down() is None
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_next_up_ends_what_a_killed_one_left_and_says_so(tmp_path: Path) -> None:
    killed_up(tmp_path, "bring_up_prefect")
    left = started(tmp_path)
    said: list[str] = []
    standing = bring_up_prefect(port=0, say=said.append)
    assert len(said) == 1
    assert "that was left unfinished" in said[0]
    assert not set(left) & set(started(tmp_path))
    again = bring_up_prefect(say=said.append)
    assert (again.server, again.worker, len(said)) == (standing.server, standing.worker, 1)
    assert take_down_prefect() is not None
    until(lambda: not started(tmp_path), "its end")


def test_a_note_whose_writer_is_killed_is_the_old_or_the_new_one(tmp_path: Path) -> None:
    with opened_note("kind") as note:
        note.write({"long": "x" * 100})
        file = state_folder() / "kind.json"
        text = file.read_bytes()
        # The shorter one, before the rest is cut off.
        file.write_bytes(json.dumps({"short": 1}).encode().ljust(len(text)))
        assert note.read() == {"short": 1}
        note.write({"short": 1})
        assert file.read_text(encoding="utf-8") == '{"short": 1}'
        note.write(None)
        assert note.read() is None


def test_stores_with_flows_and_runs_of_dead_processes_are_known(tmp_path: Path) -> None:
    dead, living = asdict(replace(this_process(), started=0)), asdict(this_process())
    stores = [tmp_path / name for name in ("flow", "run", "alive", "old")]
    for store, process, where in (
        (stores[0], dead, str(stores[0])),
        (stores[2], living, str(stores[2])),
        # Of a version that did not note the store.
        (stores[3], dead, ""),
    ):
        flow = FlowRecord("0" * 32, "train", "", process, store=where)
        write_record(LocalStorage(private_state(store)), flow, key="flows/0.json")
    tracking = TrackingRecord("sqlite:////nowhere.db", "0", "1").to_json()
    for store, owner in ((stores[1], dead), (stores[2], living)):
        run = RunNote("0", f"{store}/one", owner, tracking)
        write_record(LocalStorage(private_state(store)), run, key="runs/0.json")
    faults: list[str] = []
    assert sorted(map(str, left_stores(faults))) == [str(stores[0]), str(stores[1])]
    (private_state(stores[1]) / "runs" / "0.json").write_text("[]", encoding="utf-8")
    assert left_stores(faults) == [stores[0]]
    assert len(faults) == 1
    assert os.fspath(stores[1].name) in faults[0] or "runs/0.json" in faults[0]
