"""The conformance suite of storages; the tests of a storage subclass `StorageConformance`."""

# ruff: noqa: D102 (the name of a test is the sentence)

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import numpy as np
import pytest

from vinedresser.errors import KeyMissing, KeyTaken, StoreError, StoreFull
from vinedresser.objects import Span, Storage, open_storage
from vinedresser.objects.base import Buffer
from vinedresser.testing.putting import ROUNDS, is_whole


class StorageConformance:
    """Tests of a storage; override the fixture `location` and, if possible, `small_location`."""

    @pytest.fixture
    def location(self) -> str:
        """An empty location for `open_storage`, accessible from other processes."""
        raise NotImplementedError

    @pytest.fixture
    def small_location(self) -> Iterator[str]:
        """An empty location with space for an object of 64 KiB, but not of 1 MiB."""
        pytest.skip("this storage cannot be limited in size")

    @pytest.fixture
    def storage(self, location: str) -> Storage:
        """The storage under test."""
        return open_storage(location)

    def test_location_is_returned_as_given(self, storage: Storage, location: str) -> None:
        assert storage.location == location

    def test_parts_are_concatenated_in_order(self, storage: Storage) -> None:
        matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
        nothing = np.empty((0, 3), np.float64)
        parts: list[Buffer] = [
            b"a",
            bytearray(b"bc"),
            memoryview(b""),
            matrix.data,
            nothing.data,
            b"",
            b"z",
        ]
        storage.put("folder/object.bin", parts)
        assert storage.get("folder/object.bin") == b"abc" + matrix.tobytes() + b"z"

    def test_parts_are_drawn_once_in_order_and_may_be_many_megabytes(
        self, storage: Storage
    ) -> None:
        drawn: list[int] = []

        def parts() -> Iterator[bytes]:
            for number in range(7):
                drawn.append(number)
                yield bytes([number]) * 700_001

        storage.put("new/folder/object", parts())
        assert drawn == list(range(7))
        assert storage.get("new/folder/object") == b"".join(parts())

    def test_more_parts_than_one_system_call_takes(self, storage: Storage) -> None:
        parts = [number.to_bytes(4) for number in range(5000)]
        storage.put("many", parts)
        assert storage.get("many") == b"".join(parts)

    def test_an_object_without_bytes(self, storage: Storage) -> None:
        storage.put("empty", [])
        assert storage.exists("empty")
        assert storage.get("empty") == b""

    @pytest.mark.parametrize(
        ("start", "length", "expected"),
        [
            (0, 4, b"0123"),
            (3, 2, b"34"),
            (7, None, b"789"),
            (8, 100, b"89"),
            (10, None, b""),
            (11, 5, b""),
            (4, 0, b""),
        ],
    )
    def test_ranges(
        self, storage: Storage, start: int, length: int | None, expected: bytes
    ) -> None:
        storage.put("digits", [b"0123456789"])
        assert storage.get("digits", start, length) == expected

    def test_a_missing_object(self, storage: Storage) -> None:
        storage.put("there/is", [b"x"])
        for key in ("nowhere", "there/is not", "no/folder/either", "there"):
            with pytest.raises(KeyMissing if key != "there" else StoreError, match=key):
                storage.get(key)
            assert not storage.exists(key)
            storage.delete("nowhere")

    def test_a_put_replaces(self, storage: Storage) -> None:
        storage.put("key", [b"a long first version"])
        storage.put("key", [b"second"])
        assert storage.get("key") == b"second"

    def test_an_exclusive_put_does_not_replace(self, storage: Storage) -> None:
        storage.put("key", [b"first"], exclusive=True)
        with pytest.raises(KeyTaken, match="key"):
            storage.put("key", [b"second"], exclusive=True)
        assert storage.get("key") == b"first"
        assert storage.list("") == ["key"]

    def test_a_deleted_object_is_gone_and_its_key_free(self, storage: Storage) -> None:
        storage.put("key", [b"first"], exclusive=True)
        storage.delete("key")
        assert not storage.exists("key")
        storage.put("key", [b"second"], exclusive=True)
        assert storage.get("key") == b"second"

    def test_listing(self, storage: Storage) -> None:
        keys = ["a", "index/0/002", "index/0/010", "index/1/000", "index/10/000", "indexes"]
        for key in reversed(keys):
            storage.put(key, [b"x"])
        assert storage.list("") == keys
        assert storage.list("index/0/") == ["index/0/002", "index/0/010"]
        assert storage.list("index/1") == ["index/1/000", "index/10/000"]
        assert storage.list("index/0/", after="index/0/002") == ["index/0/010"]
        assert storage.list("index/0/", after="index/0/010") == []
        assert storage.list("nothing/here/") == []

    def test_folders(self, storage: Storage) -> None:
        for key in ("a/x/1", "a/x/2", "a/y", "a/z/deep/3", "ab/1", "top"):
            storage.put(key, [b"x"])
        assert storage.folders() == ["a", "ab"]
        assert storage.folders("a/") == ["x", "z"]
        assert storage.folders("nothing/here/") == []

    def test_many_objects_at_once(self, storage: Storage) -> None:
        for number in range(40):
            storage.put(f"k/{number}", [str(number).encode()])
        asked = [f"k/{number}" for number in (7, 39, 100, 0, 7)]
        assert storage.get_many(asked) == [b"7", b"39", None, b"0", b"7"]
        assert storage.get_many(["nowhere"]) == [None]
        assert storage.get_many([]) == []

    def test_spans_are_read_in_order(self, storage: Storage) -> None:
        for number in range(20):
            storage.put(f"k/{number}", [bytes([65 + number]) * (number + 1)])
        asked = [Span(f"k/{number}", number // 2, 3) for number in (*range(19, -1, -1), 30, 4)]
        expected = [storage.get(*span) if span.key != "k/30" else None for span in asked]
        assert list(storage.get_spans(asked)) == expected
        assert list(storage.get_spans([])) == []

    def test_unusual_names(self, storage: Storage) -> None:
        keys = sorted(["with space/ö.json", "q?&=%41#", "-dash", "dot./..two"])
        for key in keys:
            storage.put(key, [key.encode()])
        assert storage.list("") == keys
        assert [storage.get(key).decode() for key in keys] == keys

    @pytest.mark.parametrize(
        "key", ["", "/etc/x", "../x", "a/../../x", "a//b", "a/", "./a", "a\0b"]
    )
    def test_keys_stay_inside(self, storage: Storage, key: str) -> None:
        with pytest.raises(StoreError, match="key"):
            storage.put(key, [b"x"])
        with pytest.raises(StoreError, match="key"):
            storage.get(key)

    def test_a_failed_put_changes_nothing(self, storage: Storage) -> None:
        storage.put("key", [b"first"])
        with pytest.raises(TypeError):
            storage.put("key", [b"second", "no buffer"])  # type: ignore[list-item]
        assert storage.get("key") == b"first"
        assert storage.list("") == ["key"]

    def test_a_full_storage_raises_and_keeps_its_objects(self, small_location: str) -> None:
        storage = open_storage(small_location)
        storage.put("before", [bytes(65536)])
        for exclusive in (False, True):
            with pytest.raises(StoreFull, match="big"):
                storage.put("big", [bytes(1 << 19), bytes(1 << 19)], exclusive=exclusive)
        assert storage.list("") == ["before"]
        assert storage.get("before") == bytes(65536)
        # The failed puts gave their room back.
        storage.put("after", [bytes(65536)], exclusive=True)
        assert storage.list("") == ["after", "before"]

    def test_concurrent_puts_of_one_key_are_atomic(self, location: str) -> None:
        versions = [bytes([number]) * 300_000 for number in range(6)]

        def put_and_get(version: bytes) -> bool:
            storage = open_storage(location)
            for _ in range(20):
                storage.put("contended", [version[:1000], version[1000:]])
                if storage.get("contended") not in versions:
                    return False
            return True

        with ThreadPoolExecutor(len(versions)) as pool:
            assert all(pool.map(put_and_get, versions))
        assert open_storage(location).list("") == ["contended"]

    def test_an_exclusive_race_has_one_winner(self, storage: Storage, location: str) -> None:
        with _started(location, "race") as race:
            answers, _ = race.communicate(timeout=60)
            assert race.returncode == 0
        winners = {
            int(number): pid
            for pid, *won in map(bytes.split, answers.splitlines())
            for number in won
        }
        assert sum(len(answer.split()) - 1 for answer in answers.splitlines()) == ROUNDS
        assert sorted(winners) == list(range(ROUNDS))
        for number, pid in winners.items():
            assert storage.get(f"race/{number}") == pid * 1000

    def test_a_killed_put_leaves_nothing_or_a_whole_object(
        self, storage: Storage, location: str
    ) -> None:
        moments = random.Random(7)  # noqa: S311 (nothing secret)
        with _started(location, "forever") as putting:
            assert putting.stdin is not None
            assert putting.stdout is not None
            for _ in range(6):
                for key in storage.list(""):
                    storage.delete(key)
                putting.stdin.write(b"another\n")
                putting.stdin.flush()
                putter = int(putting.stdout.readline())
                deadline = time.monotonic() + 60
                while not storage.list("whole/"):
                    assert time.monotonic() < deadline, "the putting process does not put"
                time.sleep(moments.uniform(0, 0.02))
                os.kill(putter, signal.SIGKILL)
                assert putting.stdout.readline() == b"ended\n"
                keys = storage.list("")
                assert keys
                assert [key for key in keys if not is_whole(storage.get(key))] == []


@contextmanager
def _started(location: str, what: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start `putting`; kill it and its children at the end of the context."""
    command = [sys.executable, "-m", "vinedresser.testing.putting", location, what]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
