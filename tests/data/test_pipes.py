"""Pipes: one stream for each epoch, read as it arrives."""

from __future__ import annotations

import gzip
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest

from tests.data import written
from vinedresser.data import PipeDataset, TorchLoader, feed_pipe
from vinedresser.errors import ConfigError, DamagedData, StoreError


@contextmanager
def fed(source: Path, pipe: Path, **settings: int) -> Iterator[None]:
    feeder = threading.Thread(target=feed_pipe, args=(source, pipe), kwargs=settings)
    feeder.start()
    yield
    feeder.join()


def pipe_of(path: Path, **settings: object) -> PipeDataset:
    return PipeDataset(path, batch_size=4, patience=60.0, **settings)  # type: ignore[arg-type]


def test_each_epoch_is_a_pipe(tmp_path: Path) -> None:
    parts = written.write_files(tmp_path / "data", [5, 0, 8])
    (tmp_path / "data" / "003.tfrecord").write_bytes(gzip.compress(written.tfrecord([b"x" * 99])))
    records = [*parts[0], *parts[2], b"x" * 99]
    dataset = pipe_of(tmp_path / "train")
    with fed(tmp_path / "data", tmp_path / "train", epochs=2):
        for epoch in range(2):
            assert dataset.epoch == epoch
            batches = list(dataset)
            assert written.values(batches) == records
            assert [batch.number for batch in batches] == [0, 1, 2, 3]
            origins = [origin for batch in batches for origin in batch.origins]
            assert [origin.record for origin in origins] == list(range(14))
            assert origins[1] == (f"{tmp_path}/train_{epoch}", 16 + len(records[0]), 1)
    assert not list(tmp_path.glob("train_*"))
    assert dataset.statistics.records == 28


def test_a_seed_shuffles_the_files(tmp_path: Path) -> None:
    parts = written.write_files(tmp_path / "data", [3] * 8)
    dataset = pipe_of(tmp_path / "train")
    with fed(tmp_path / "data", tmp_path / "train", epochs=2, seed=1):
        epochs = [written.values(dataset) for _ in range(2)]
    assert sorted(epochs[0]) == sorted(record for part in parts for record in part)
    assert epochs[0] != epochs[1]
    assert all(epoch[:3] in parts for epoch in epochs)


def test_lines_of_files_without_a_line_feed_stay_apart(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text(f'"{name}1"\n"{name}2"')
    dataset = pipe_of(tmp_path / "train", format="jsonl")
    feeding = threading.Thread(target=feed_pipe, args=(f"{tmp_path}/*.jsonl", tmp_path / "train"))
    feeding.start()
    assert written.values(dataset) == ["a1", "a2", "b1", "b2"]
    feeding.join()


def more_than_a_pipe_holds(path: Path) -> list[bytes]:
    records = written.records(1000, longest=1000)
    path.write_bytes(written.tfrecord(records))
    return records


def test_an_iteration_that_is_broken_off_is_continued(tmp_path: Path) -> None:
    records = more_than_a_pipe_holds(tmp_path / "a.tfrecord")
    dataset = pipe_of(tmp_path / "train")
    with fed(tmp_path / "a.tfrecord", tmp_path / "train"):
        batches = iter(dataset)
        assert written.values(islice(batches, 3)) == records[:12]
        del batches
        assert dataset.state_dict()["record"] == 12
        assert written.values(dataset) == records[12:]
        assert dataset.epoch == 1


def test_a_reader_that_is_killed_resumes(tmp_path: Path) -> None:
    records = more_than_a_pipe_holds(tmp_path / "a.tfrecord")
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            for batch in pipe_of(tmp_path / "train"):
                os.write(write, b"." * len(batch.values))
                if batch.number == 2:
                    signal.pause()
        finally:
            os._exit(1)
    with fed(tmp_path / "a.tfrecord", tmp_path / "train"):
        done = b""
        while len(done) < 12:
            done += os.read(read, 12)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)
        dataset = pipe_of(tmp_path / "train")
        with pytest.raises(ConfigError, match="the position has record = '12'"):
            dataset.load_state_dict({**dataset.state_dict(), "record": "12"})
        dataset.load_state_dict({**dataset.state_dict(), "record": 12})
        assert written.values(dataset) == records[12:]


def test_damage_is_named_or_skipped(tmp_path: Path) -> None:
    content = bytearray(written.tfrecord([b"abc", b"defg", b"h"]))
    content[19 + 12] ^= 1
    for skip in (0, 1, 2):
        dataset = pipe_of(tmp_path / "train", skip_damaged=skip)
        pipe = tmp_path / "train_0"
        os.mkfifo(pipe)
        writer = threading.Thread(target=pipe.write_bytes, args=(content + b"rest",))
        writer.start()
        if skip == 2:
            assert written.values(dataset) == [b"abc", b"h"]
            assert [(one.record, one.offset) for one in dataset.damaged] == [(1, 19), (3, 56)]
        else:
            reason = "it is cut off" if skip else "the checksum does not match"
            with pytest.raises(DamagedData, match=rf"train_0: record \d at byte \d+: {reason}"):
                list(dataset)
        writer.join()
        pipe.unlink()


def test_what_is_no_pipe_is_named(tmp_path: Path) -> None:
    (tmp_path / "file_0").touch()
    (tmp_path / "folder").mkdir()
    for name, message in (
        ("file", "file_0: not a pipe"),
        ("folder", "folder: a folder, not a pipe: the channel is in File mode, for Dataset"),
    ):
        with pytest.raises(ConfigError, match=message):
            list(pipe_of(tmp_path / name))
    short = PipeDataset(tmp_path / "missing", batch_size=1, patience=0.01)
    with pytest.raises(StoreError, match=r"missing_0: no such pipe, after 0.01 s; does its feeder"):
        list(short)
    os.mkfifo(tmp_path / "missing_0")
    with pytest.raises(StoreError, match=r"missing_0: nothing arrived for 0.01 s"):
        list(short)
    with pytest.raises(ConfigError, match="format = 'tar': a pipe can have tfrecord, length"):
        pipe_of(tmp_path / "a", format="tar")
    with pytest.raises(ConfigError, match="workers cannot share a pipe"):
        list(TorchLoader(pipe_of(tmp_path / "a"), num_workers=2))
    written.write_files(tmp_path / "data", [1])
    with pytest.raises(ConfigError, match="file_0: exists, and is not a pipe"):
        feed_pipe(tmp_path / "data", tmp_path / "file")
