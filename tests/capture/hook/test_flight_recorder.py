"""What torch's flight recorder says about a rank in which no step ends."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from vinedresser.capture.run import flight_recorder
from vinedresser.capture.run.flight_recorder import FlightRecorder

# As torch 2.13 returns them.
ENTRY = {
    "collective_seq_id": 27,
    "input_dtypes": ["Float"],
    "input_sizes": [[195]],
    "is_p2p": False,
    "p2p_seq_id": 3,
    "process_group": ["0", "default_pg"],
    "profiling_name": "gloo:all_reduce",
    "retired": False,
}


def recorder(monkeypatch: pytest.MonkeyPatch, *entries: dict[str, Any]) -> list[tuple[bool, ...]]:
    """Have torch record some operations; return the arguments of each reading."""
    readings: list[tuple[bool, ...]] = []

    def dump(*arguments: bool) -> bytes:
        readings.append(arguments)
        return json.dumps({"entries": entries} if entries else {}).encode()

    library = SimpleNamespace(_dump_fr_trace_json=dump)
    monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", library)
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "100")
    return readings


def test_the_oldest_operation_that_has_not_ended_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    ended, later = {**ENTRY, "retired": True}, {**ENTRY, "collective_seq_id": 28}
    recorder(monkeypatch, ended, ENTRY, later)
    found = FlightRecorder()
    assert found.look(5) == ""
    assert found.look(5) == "all_reduce number 27 of default_pg, Float [195]"
    # Steps end again.
    assert found.look(6) == ""


def test_sending_and_receiving_have_numbers_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder(monkeypatch, {**ENTRY, "is_p2p": True, "profiling_name": "nccl:recv 0<-1"})
    found = FlightRecorder()
    found.look(5)
    assert found.look(5) == "recv 0<-1 number 3 of default_pg, Float [195]"


def test_reading_takes_a_hundredth_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = recorder(monkeypatch, ENTRY)
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], thread_time=lambda: 0.03 * len(readings))
    monkeypatch.setattr(flight_recorder, "time", clock)
    found = FlightRecorder()
    said = []
    for second in range(8):
        now[0] = float(second)
        said.append(found.look(5))
    assert len(readings) == 3
    assert {*said[1:]} == {"all_reduce number 27 of default_pg, Float [195]"}
