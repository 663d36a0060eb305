"""Snapshots in a run: bounded, complete or not there, and read without trust."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from tests.store.counting_storage import CountingStorage
from vinedresser.errors import ConfigError, CorruptData, StoreFull
from vinedresser.objects import LocalStorage
from vinedresser.snapshots.reading import Snapshot, list_snapshots, open_snapshot
from vinedresser.snapshots.record import SnapshotRecord, record_key, tensors_key
from vinedresser.snapshots.settings import SnapshotSettings
from vinedresser.snapshots.trees import HostArray
from vinedresser.snapshots.writing import SnapshotFolder

RECORD = SnapshotRecord(
    step=3,
    rank=0,
    reason="nonfinite",
    time=1.0,
    run="ab",
    framework="torch",
    versions={},
    environment={},
    code="",
    world_size=1,
    bytes=0,
    sha256="",
    contents={},
)
TENSORS = {"a": HostArray("F32", (2,), b"\0\0\x80?\0\0\0@"), "b": HostArray("U8", (), b"\7")}


def folder(tmp_path: Path, **settings: Any) -> SnapshotFolder:
    return SnapshotFolder(LocalStorage(tmp_path), 0, SnapshotSettings(**settings))


def steps(tmp_path: Path) -> list[int]:
    return [snapshot.step for snapshot in list_snapshots(LocalStorage(tmp_path), [])]


def test_a_snapshot_is_read_as_it_was_written(tmp_path: Path) -> None:
    record = folder(tmp_path).write(RECORD, TENSORS)
    snapshot = open_snapshot(tmp_path / "snapshots" / "step-3")
    assert snapshot.record == record
    assert {name: bytes(one.data) for name, one in snapshot.tensors.items()} == {
        name: bytes(one.data) for name, one in TENSORS.items()
    }
    # Also by the library of the format.
    arrays = load_file(tmp_path / tensors_key(record.name))
    assert arrays["a"].tolist() == [1.0, 2.0]


def test_each_rank_is_read_once_however_many_look_at_the_others(tmp_path: Path) -> None:
    world, storage = 5, CountingStorage(tmp_path)
    for rank in range(world):
        record = replace(RECORD, rank=rank, world_size=world)
        SnapshotFolder(storage, rank, SnapshotSettings()).write(record, TENSORS)
    (first, *_) = list_snapshots(storage, [])
    opened = Snapshot(str(tmp_path), storage, first)
    storage.asked.clear()
    for one in (opened, *opened.peers):
        assert [other.record.rank for other in one.peers] == [
            rank for rank in range(world) if rank != one.record.rank
        ]
        assert all(other.tensors.keys() == TENSORS.keys() for other in one.peers)
    # Its record, and its tensors.
    assert storage.asked["snapshots"] == 2 * world


def test_without_an_answer_the_other_ranks_are_not_known(tmp_path: Path) -> None:
    class Refusing(LocalStorage):
        def folders(self, prefix: str = "") -> list[str]:
            raise StoreFull("no space left")

    for rank in range(2):
        record = replace(RECORD, rank=rank, world_size=2)
        SnapshotFolder(LocalStorage(tmp_path), rank, SnapshotSettings()).write(record, TENSORS)
    first, _ = list_snapshots(LocalStorage(tmp_path), [])
    opened = Snapshot(str(tmp_path), Refusing(tmp_path), first)
    for _ in range(2):
        with pytest.raises(StoreFull):
            opened.peers  # noqa: B018


def test_the_first_of_one_kind_and_the_last_of_the_other_are_kept(tmp_path: Path) -> None:
    kept = folder(tmp_path, keep=2)
    for step in range(6):
        kept.write(replace(RECORD, step=step, reason="periodic"), TENSORS)
    for step in (10, 11):
        assert kept.has_room(step, "nonfinite")
        kept.write(replace(RECORD, step=step), TENSORS)
    assert not kept.has_room(12, "nonfinite")
    assert steps(tmp_path) == [4, 5, 10, 11]
    assert sorted(path.name for path in (tmp_path / "snapshots").glob("*/*")) == sorted(
        ["contents.safetensors", "snapshot.json"] * 4
    )
    # Nothing is left of the others.
    assert sorted(path.name for path in (tmp_path / "snapshots").iterdir()) == [
        "step-10",
        "step-11",
        "step-4",
        "step-5",
    ]


def test_periodic_snapshots_make_room(tmp_path: Path) -> None:
    size = folder(tmp_path / "other").write(RECORD, TENSORS).bytes
    kept = folder(tmp_path, keep=5, max_bytes=2 * size + 1)
    for step in range(3):
        kept.write(replace(RECORD, step=step, reason="periodic"), TENSORS)
    assert steps(tmp_path) == [1, 2]
    kept.write(replace(RECORD, step=7), TENSORS)
    assert steps(tmp_path) == [2, 7]
    kept.write(replace(RECORD, step=8), TENSORS)
    with pytest.raises(StoreFull, match=r"does not fit into snapshots.max_bytes"):
        kept.write(replace(RECORD, step=9), TENSORS)
    assert steps(tmp_path) == [7, 8]


def test_jumps_leave_room_for_gradients_that_are_not_finite(tmp_path: Path) -> None:
    size = folder(tmp_path / "other").write(RECORD, TENSORS).bytes
    kept = folder(tmp_path, keep=5, max_bytes=3 * size + 1)
    for step in (1, 2):
        kept.write(replace(RECORD, step=step, reason="jump"), TENSORS)
    with pytest.raises(StoreFull, match="beside one of non-finite gradients"):
        kept.write(replace(RECORD, step=3, reason="jump"), TENSORS)
    kept.write(replace(RECORD, step=4), TENSORS)
    assert steps(tmp_path) == [1, 2, 4]


def test_every_damage_is_one_clear_error(tmp_path: Path) -> None:
    folder(tmp_path).write(RECORD, TENSORS)
    place = tmp_path / "snapshots" / "step-3"
    for key in (record_key("step-3"), tensors_key("step-3")):
        path = tmp_path / key
        good = path.read_bytes()
        for at in range(0, len(good), 7):
            path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
            with pytest.raises(CorruptData, match=str(path)):
                _ = open_snapshot(place).tensors
        path.write_bytes(good[:-3])
        with pytest.raises(CorruptData, match=str(path)):
            _ = open_snapshot(place).tensors
        path.write_bytes(good)
    (tmp_path / tensors_key("step-3")).unlink()
    with pytest.raises(CorruptData, match="the snapshot is incomplete"):
        _ = open_snapshot(place).tensors


def test_other_versions_and_places_are_named(tmp_path: Path) -> None:
    folder(tmp_path).write(RECORD, TENSORS)
    with pytest.raises(ConfigError, match=r"expected RUN/snapshots/step-N"):
        open_snapshot(tmp_path)
    with pytest.raises(ConfigError, match=r"no snapshot; `vinedresser snapshots"):
        open_snapshot(tmp_path / "snapshots" / "step-4")
    place = tmp_path / "snapshots" / "step-3"
    place.rename(place.with_name("step-5"))
    with pytest.raises(CorruptData, match="it is the record of step-3"):
        open_snapshot(place.with_name("step-5"))
    faults: list[str] = []
    assert list_snapshots(LocalStorage(tmp_path), faults) == []
    assert len(faults) == 1
    document = RECORD.to_json() | {"format_version": 2}
    with pytest.raises(ValueError, match="its format is version 2; this version of vinedresser"):
        SnapshotRecord.from_json(json.loads(json.dumps(document)))
