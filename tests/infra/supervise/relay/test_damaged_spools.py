"""What does not belong into a spool is neither uploaded nor in the way of the rest."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.few_descriptors import no_descriptors
from vinedresser.errors import StoreError
from vinedresser.infra.supervise.relay.files import Files
from vinedresser.infra.supervise.relay.segments import Segments
from vinedresser.infra.supervise.relay.speaking import Speaker
from vinedresser.objects import LocalStorage
from vinedresser.store.records import run_lock
from vinedresser.store.spool import adopt_spool, spools
from vinedresser.testing.runs import make_run, step_record


@pytest.fixture
def spool(tmp_path: Path) -> LocalStorage:
    make_run(tmp_path / "spool", [step_record(0)])
    return LocalStorage(tmp_path / "spool")


@pytest.fixture
def store(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "store")


def test_links_and_fifos_are_not_uploaded(spool: LocalStorage, store: LocalStorage) -> None:
    folder = Path(spool.location)
    (folder.parent / "secret").write_bytes(b"secret")
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "last.pt").symlink_to(folder.parent / "secret")
    os.mkfifo(folder / "notes.json")
    (folder / "zz.json").write_bytes(b"{}")
    Files(spool, store, None).bring(all_of_them=True)
    assert store.list("") == ["run.json", "zz.json"]


def test_strays_among_index_records_and_manifests_are_not_segments(
    spool: LocalStorage, store: LocalStorage
) -> None:
    for key in ("index/0/000000000001.json~", "index/0/7.json", "manifests/x/y", "manifests/0/1~"):
        spool.put(key, [b"{}"])
    with ThreadPoolExecutor(1) as pool:
        segments = Segments(spool, store, pool)
        assert segments.pending() == {0: [0]}
        assert segments.manifests() == []


def test_a_damaged_spool_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VINEDRESSER_SPOOL", str(tmp_path))
    for name in ("a", "b", "c"):
        os.close(adopt_spool(tmp_path / name, f"s3://bucket/runs/{name}"))
    (tmp_path / "a" / ".relay" / "target.json").write_text("{}")
    (tmp_path / "c" / ".relay" / "target.json").unlink()
    os.mkfifo(tmp_path / "c" / ".relay" / "target.json")
    assert spools() == [tmp_path / "b"]
    assert spools("s3://bucket/runs") == [tmp_path / "b"]


def test_an_unreadable_folder_is_not_taken_for_an_empty_one(
    spool: LocalStorage, store: LocalStorage
) -> None:
    files = Files(spool, store, None)
    with no_descriptors(), pytest.raises(StoreError, match="Too many open files"):
        files.bring(all_of_them=True)
    files.bring(all_of_them=True)
    assert store.list("") == ["run.json"]


def test_a_message_is_told_although_the_log_cannot_be_written(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".relay" / "log.txt").mkdir(parents=True)
    assert Speaker(tmp_path).say("hello")
    assert capfd.readouterr().out == '{"say": "hello"}\n'


def test_the_lock_of_a_run_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"precious")
    (tmp_path / "supervisor.lock").symlink_to("target")
    for taken in (run_lock.acquire, run_lock.share, run_lock.is_held):
        with pytest.raises(OSError, match=r"supervisor\.lock: a symbolic link, not a file"):
            taken(tmp_path)
    (tmp_path / "supervisor.lock").unlink()
    os.mkfifo(tmp_path / "supervisor.lock")
    with pytest.raises(OSError, match=r"supervisor\.lock: a FIFO, not a file"):
        run_lock.is_held(tmp_path)
    assert (tmp_path / "target").read_bytes() == b"precious"
