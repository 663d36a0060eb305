from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from vinedresser.errors import ConfigError, StoreError
from vinedresser.store.storage import LocalStorage, open_storage
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


def test_an_obstacle_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="file/below"):
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
