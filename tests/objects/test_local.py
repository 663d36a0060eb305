from __future__ import annotations

import gc
import os
import socket
import stat
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.few_descriptors import no_descriptors
from vinedresser.errors import ConfigError, CorruptData, KeyMissing, KeyTaken, NotAFile, StoreError
from vinedresser.objects import LocalStorage, Span, open_storage
from vinedresser.testing.small_disk import small_disk
from vinedresser.testing.storage import StorageConformance


class TestLocalStorage(StorageConformance):
    @pytest.fixture
    def location(self, tmp_path: Path) -> str:
        return str(tmp_path / "not made yet" / "objects")

    @pytest.fixture
    def small_location(self, tmp_path: Path) -> Iterator[str]:
        with small_disk(tmp_path, 512 << 10) as folder:
            yield str(folder)


def test_a_change_of_the_working_directory_has_no_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    storage = LocalStorage("objects")
    storage.put("key", [b"x"])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert storage.get("key") == b"x"
    assert storage.location == "objects"


def test_objects_are_plain_files(tmp_path: Path) -> None:
    LocalStorage(tmp_path).put("a/b.json", [b"{}"])
    assert (tmp_path / "a" / "b.json").read_bytes() == b"{}"


def test_leftovers_of_a_killed_process_are_not_objects(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.put("folder/key", [b"x"])
    (tmp_path / "folder" / ".tmp-0a1b2c3d-77-0-key").write_bytes(b"half")
    assert storage.list("") == ["folder/key"]
    with pytest.raises(StoreError, match="must not begin with"):
        storage.get("folder/.tmp-0a1b2c3d-77-0-key")


class _Batch:
    """An object of the training that reads."""


def test_a_missing_object_keeps_nothing_of_its_reader_alive(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)

    def read(key: str) -> weakref.ref[_Batch]:
        batch = _Batch()
        with suppress(StoreError):
            storage.get(key)
        return weakref.ref(batch)

    (tmp_path / "file").write_bytes(b"")
    gc.disable()
    try:
        assert read("missing")() is None
        assert read("file/below")() is None
    finally:
        gc.enable()


def test_an_obstacle_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="file: a file, not a folder"):
        LocalStorage(tmp_path).put("file/below", [b"x"])


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_spellings_of_a_directory(tmp_path: Path, form: str) -> None:
    open_storage(form.format(tmp_path)).put("key", [b"x"])
    assert (tmp_path / "key").exists()


def test_the_home_directory_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    open_storage("~/runs").put("key", [b"x"])
    assert (tmp_path / "runs" / "key").exists()


@pytest.mark.parametrize("location", ["gs://bucket/prefix", Path("s3://bucket/prefix")])
def test_an_unknown_kind_of_store_is_refused(location: str | Path) -> None:
    with pytest.raises(ConfigError, match="s3://"):
        open_storage(location)


def _link_to_a_file(path: Path) -> None:
    target = path.with_name("target")
    target.write_bytes(b"{}")
    path.symlink_to(target)


def _socket(path: Path) -> None:
    # The path of a socket is limited to 108 bytes.
    here = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(f"/proc/self/fd/{here}/{path.name}")
    os.close(here)


OBSTACLES: dict[str, Callable[[Path], None]] = {
    "a folder": Path.mkdir,
    "a FIFO": os.mkfifo,
    "a socket": _socket,
    "a symbolic link": _link_to_a_file,
    "a symbolic link to nothing": lambda path: path.symlink_to("nowhere"),
    "a symbolic link to itself": lambda path: path.symlink_to(path.name),
}


@pytest.mark.parametrize("kind", OBSTACLES)
def test_only_regular_files_are_objects(tmp_path: Path, kind: str) -> None:
    storage = LocalStorage(tmp_path)
    storage.put("folder/other", [b"x"])
    OBSTACLES[kind](tmp_path / "folder" / "key")
    message = f"folder/key: {kind.partition(' to ')[0]}, not a file$"
    with pytest.raises(NotAFile, match=message):
        storage.get("folder/key")
    with pytest.raises(NotAFile, match=message):
        storage.get("folder/key", 1, 1)
    assert storage.get_many(["folder/other", "folder/key"]) == [b"x", None]
    assert list(storage.get_spans([Span("folder/key", 0, 1)])) == [None]
    assert not storage.exists("folder/key")
    assert storage.get("folder/other") == b"x"
    with pytest.raises(KeyTaken, match="folder/key"):
        storage.put("folder/key", [b"y"], exclusive=True)


def test_a_file_that_cannot_be_looked_up_is_not_missing(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.put("folder/key", [b"x"])
    with no_descriptors(), pytest.raises(StoreError, match="folder/key: Too many open files"):
        storage.exists("folder/key")
    assert storage.exists("folder/key")


def test_a_file_larger_than_memory_is_named(tmp_path: Path) -> None:
    with (tmp_path / "key").open("wb") as file:
        file.truncate(1 << 48)
    for length in (None, 1 << 48):
        with pytest.raises(MemoryError, match=r"/key: \d+ bytes do not fit into memory"):
            LocalStorage(tmp_path).get("key", 0, length)


def test_something_else_than_a_file_is_damage_and_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "key").mkdir()
    for expected in (CorruptData, StoreError):
        with pytest.raises(expected, match="key: a folder, not a file"):
            LocalStorage(tmp_path).get("key")


@pytest.mark.parametrize("depth", ["folder", "folder/inner"])
@pytest.mark.parametrize("kind", ["a file", "a symbolic link"])
def test_only_folders_are_folders(tmp_path: Path, depth: str, kind: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    LocalStorage(elsewhere).put("inner/key", [b"secret"])
    LocalStorage(elsewhere).put("key", [b"secret"])
    root = tmp_path / "root"
    (root / depth).parent.mkdir(parents=True)
    if kind == "a file":
        (root / depth).write_bytes(b"")
    else:
        (root / depth).symlink_to(elsewhere)
    storage = LocalStorage(root)
    key = f"{depth}/key"
    message = f"root/{depth}: {kind}, not a folder$"
    for refused in (
        lambda: storage.get(key),
        lambda: storage.put(key, [b"x"]),
        lambda: storage.delete(key),
        lambda: storage.list(f"{depth}/"),
        lambda: storage.folders(f"{depth}/"),
    ):
        with pytest.raises(NotAFile, match=message):
            refused()
    assert not storage.exists(key)
    assert LocalStorage(elsewhere).get("key") == b"secret"
    assert LocalStorage(elsewhere).list("") == ["inner/key", "key"]


def test_a_put_replaces_a_link_and_not_its_target(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"precious")
    (tmp_path / "key").symlink_to("target")
    LocalStorage(tmp_path).put("key", [b"x"])
    assert (tmp_path / "target").read_bytes() == b"precious"
    assert LocalStorage(tmp_path).get("key") == b"x"


def test_a_listing_names_links_and_does_not_follow_them(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "root")
    storage.put("folder/key", [b"x"])
    (tmp_path / "root" / "around").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "root" / "fifo")
    assert storage.list("") == ["around", "fifo", "folder/key"]
    assert storage.folders() == ["folder"]


def test_the_root_may_be_a_link(tmp_path: Path) -> None:
    LocalStorage(tmp_path / "real").put("folder/key", [b"x"])
    (tmp_path / "link").symlink_to("real")
    storage = LocalStorage(tmp_path / "link")
    assert storage.get("folder/key") == b"x"
    storage.put("new", [b"y"])
    assert storage.list("") == ["folder/key", "new"]
    (tmp_path / "link").unlink()
    with pytest.raises(KeyMissing, match="folder/key"):
        storage.get("folder/key")


@pytest.mark.parametrize(
    ("umask", "mode"),
    [(0o022, 0o700), (0o027, 0o700), (0o077, 0o700), (0o007, 0o770), (0o002, 0o770), (0, 0o777)],
)
def test_folders_are_private_unless_the_umask_shares_writing(
    tmp_path: Path, umask: int, mode: int
) -> None:
    code = (
        "import sys; from vinedresser.objects import LocalStorage; "
        "LocalStorage(sys.argv[1] + '/runs/one').put('folder/key', [b'x'])"
    )
    tmp_path.chmod(0o755)
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True, umask=umask)
    for folder in ("runs", "runs/one", "runs/one/folder"):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == mode
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
