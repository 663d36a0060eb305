"""What replays found is kept beside the snapshot, completed by later ones, and read as data."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from vinedresser.objects import LocalStorage
from vinedresser.snapshots.replay_record import (
    ReplayRecord,
    TriedChange,
    read_replay,
    replay_key,
    save_replay,
)

_LOCATED = ReplayRecord(1.0, "the same", "aten.div: nan", "a.py:3: x / y", "samples 3 of 8")
_TRIED = ReplayRecord(
    2.0,
    "the same",
    tried="float32 cures it",
    trials=[TriedChange("float32", "loss 1", "cures it").to_json()],
)


def test_later_replays_complete_earlier_ones(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    save_replay(storage, "step-3", _LOCATED)
    save_replay(storage, "step-3", _TRIED)
    found = read_replay(storage, "step-3", [])
    both = dataclasses.replace(_LOCATED, time=2.0, tried=_TRIED.tried, trials=_TRIED.trials)
    assert found == both
    assert both.sentences == [
        "aten.div: nan · a.py:3: x / y",
        "samples 3 of 8",
        "tried: float32 cures it",
    ]
    # One that looks for nothing loses nothing.
    save_replay(storage, "step-3", ReplayRecord(3.0, "different"))
    assert read_replay(storage, "step-3", []) == dataclasses.replace(
        both, time=3.0, same="different"
    )


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"time": "now", "same": ""}',
        b'{"time": 1.0, "same": "", "trials": [{"change": "x"}]}',
        b'{"time": 1.0, "same": "", "trials": [3]}',
        b'{"time": NaN, "same": ""}',
    ],
)
def test_a_damaged_record_is_named(tmp_path: Path, content: bytes) -> None:
    storage = LocalStorage(tmp_path)
    storage.put(replay_key("step-3"), [content])
    faults: list[str] = []
    assert read_replay(storage, "step-3", faults) is None
    assert len(faults) == 1
    assert "replay.json" in faults[0]
