"""Prefixes on a real S3 server as folders."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from vinedresser.data import downloading
from vinedresser.data.downloading import download
from vinedresser.data.sources.s3 import S3Object
from vinedresser.errors import ConfigError, KeyMissing, LaunchError, StoreError
from vinedresser.objects import open_storage

PIECE = 1 << 20


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/vinedresser/data/channels"


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_folder_has_what_is_below_a_prefix(s3: str, cache: Path) -> None:
    storage = open_storage(f"{s3}/train")
    expected = {"rows.csv": b"1,2\n", "deeper/ü b.csv": b"3,4\n", ".hidden": b"h", "empty": b""}
    for key, content in expected.items():
        storage.put(key, [content])
    open_storage(s3).put("training.csv", [b"of another prefix"])
    folder = download(f"{s3}/train")
    assert contents(folder) == expected
    assert folder.name == "train"
    assert download(f"{s3}/train/").name == "train"
    # Only that, and the folder's own notes.
    assert sorted(one.name for one in folder.parent.iterdir()) == ["complete", "lock", "train"]


def test_a_single_object_is_a_file_in_a_folder(s3: str) -> None:
    open_storage(s3).put("rows.csv", [b"1,2\n"])
    assert contents(download(f"{s3}/rows.csv")) == {"rows.csv": b"1,2\n"}


def test_a_folder_is_downloaded_once_and_a_new_version_is_another(
    s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_storage(s3).put("a.csv", [b"1"])
    first = download(s3)
    with monkeypatch.context() as patch:
        patch.setattr(S3Object, "read", None)
        assert download(s3) == first
    open_storage(s3).put("a.csv", [b"2"])
    second = download(s3)
    assert (contents(first), contents(second)) == ({"a.csv": b"1"}, {"a.csv": b"2"})


def test_a_file_that_was_removed_or_cut_is_downloaded_again(s3: str) -> None:
    for name in ("a", "b", "c"):
        open_storage(s3).put(name, [name.encode() * 3])
    folder = download(s3)
    (folder / "a").unlink()
    (folder / "b").chmod(0o644)
    (folder / "b").write_bytes(b"b")
    assert contents(download(s3)) == {"a": b"aaa", "b": b"bbb", "c": b"ccc"}


def test_what_is_no_file_below_a_folder_is_refused(s3: str) -> None:
    with pytest.raises(ConfigError, match="there are no objects"):
        download(f"{s3}/")
    with pytest.raises(KeyMissing, match="no such object"):
        download(f"{s3}/missing.csv")


@pytest.mark.parametrize("key", ["../a", "a//b", "./a", "a/..", "x" * 200 + "ü" * 50])
def test_keys_that_leave_the_folder_are_refused(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from vinedresser.data.sources import s3 as source

    found = S3Object(f"s3://bucket/p/{key}", 1, "v")
    monkeypatch.setattr(source, "list_objects", lambda _: iter([found]))
    with pytest.raises(ConfigError, match="cannot be the path of a file"):
        download("s3://bucket/p")


def test_an_object_that_is_also_a_folder_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from vinedresser.data.sources import s3 as source

    found = [S3Object(f"s3://bucket/p/{key}", 1, "v") for key in ("a", "a/b")]
    monkeypatch.setattr(source, "list_objects", lambda _: iter(found))
    with pytest.raises(ConfigError, match="s3://bucket/p/a: there are objects below it, too"):
        download("s3://bucket/p")


def test_a_content_that_is_not_that_of_the_etag_is_refused(
    s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_storage(s3).put("a", [b"right"])
    with monkeypatch.context() as patch:
        patch.setattr(S3Object, "read", lambda *_: b"wrong")
        with pytest.raises(StoreError, match="its ETag says"):
            download(s3)
    assert contents(download(s3)) == {"a": b"right"}


def test_more_than_the_disk_has_room_for_is_refused_first(
    s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_storage(s3).put("a", [b"1234"])
    full = shutil.disk_usage("/")._replace(free=3)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    with pytest.raises(StoreError, match="XDG_CACHE_HOME"):
        download(s3)


def test_a_prefix_whose_last_part_is_no_name_stays_in_its_folder(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vinedresser.data.sources import s3 as source

    found = S3Object("s3://bucket/p/../a", 0, "v")
    monkeypatch.setattr(source, "list_objects", lambda _: iter([found]))
    folder = download("s3://bucket/p/..")
    assert (folder.name, folder.parent.parent) == ("data", cache)
    assert contents(folder) == {"a": b""}


def test_a_download_that_is_given_up_ends_with_its_piece_and_continues(
    s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_storage(s3).put("big", [b"0123456789"])
    monkeypatch.setattr(downloading, "_PIECE", 4)
    asked: list[int] = []
    read = S3Object.read

    def noted(self: S3Object, start: int, stop: int) -> bytes:
        asked.append(start)
        return read(self, start, stop)

    monkeypatch.setattr(S3Object, "read", noted)
    with pytest.raises(LaunchError, match="/big: its download was broken off after 0 of 0 MB"):
        download(s3, lambda: len(asked) == 2)
    assert contents(download(s3)) == {"big": b"0123456789"}
    # The last piece that was kept is read again.
    assert asked == [0, 4, 4, 8]


def test_a_file_that_fails_ends_the_others(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = open_storage(s3)
    storage.put("a", [b"0" * 400])
    storage.put("b", [b"right"])
    monkeypatch.setattr(downloading, "_PIECE", 4)
    pieces: list[int] = []
    failing = threading.Event()

    def read(self: S3Object, start: int, stop: int) -> bytes:
        if self.uri.endswith("/b"):
            failing.set()
            return b"wrong"[start:stop]
        failing.wait(60)
        pieces.append(start)
        time.sleep(0.01)
        return b"0" * (stop - start)

    monkeypatch.setattr(S3Object, "read", read)
    # Not that the other one was given up, although that one comes first.
    with pytest.raises(StoreError, match="/b: its content has the MD5"):
        download(s3)
    assert len(pieces) < 100


def test_a_download_of_another_process_is_not_awaited_for_ever(s3: str) -> None:
    open_storage(s3).put("a", [b"1"])
    folder = download(s3)
    with (folder.parent / "lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(LaunchError, match="another process still downloads it"):
            download(s3, lambda: True)
    assert download(s3, lambda: True) == folder


def test_what_was_downloaded_is_only_then_read_only(
    s3: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_storage(s3).put("a", [b"1"])

    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        with pytest.raises(StoreError, match="Input/output error"):
            download(s3)
    # A user who is not root opens it again.
    (part,) = cache.glob("*/parts/*")
    assert part.stat().st_mode & 0o200
    assert not (download(s3) / "a").stat().st_mode & 0o222


@pytest.mark.thorough
def test_a_killed_download_continues(s3: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloading, "_PIECE", PIECE)
    content = os.urandom(5 * PIECE + 12345)
    open_storage(s3).put("big", [content])
    slowly = (
        "import sys, time\nfrom vinedresser.data.sources.s3 import S3Object\n"
        "from vinedresser.data import downloading\nread = S3Object.read\n"
        "def slow(self, start, stop):\n    time.sleep(0.3)\n    return read(self, start, stop)\n"
        f"S3Object.read = slow\ndownloading._PIECE = {PIECE}\ndownloading.download(sys.argv[1])"
    )
    process = subprocess.Popen([sys.executable, "-c", slowly, s3])
    while sum(one.stat().st_size for one in cache.glob("*/parts/*")) < 3 * PIECE:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    asked: list[int] = []
    read = S3Object.read

    def noted(self: S3Object, start: int, stop: int) -> bytes:
        asked.append(start)
        return read(self, start, stop)

    monkeypatch.setattr(S3Object, "read", noted)
    folder = download(s3)
    assert contents(folder) == {"big": content}
    assert 2 * PIECE <= asked[0] <= 4 * PIECE
    assert not (folder.parent / "parts").exists()
