"""A data set that is written can be read, and writing it resumes after a kill."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data import written
from vinedresser.data import Dataset, decode_example, encode_example, write
from vinedresser.data.formats.registry import open_format
from vinedresser.data.index import make_index
from vinedresser.data.sources.finding import find_objects
from vinedresser.errors import ConfigError


def files(folder: Path) -> dict[str, bytes]:
    """Return the contents of the files that readers see."""
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {
        name: path.read_bytes()
        for name, path in sorted(found.items())
        if not path.name.startswith((".", "_"))
    }


def test_parts_are_filled_in_order(tmp_path: Path) -> None:
    records = written.records(40)
    done = write(iter(records), str(tmp_path / "data"), part_bytes=300)
    parts = files(tmp_path / "data")
    assert list(parts) == [f"part-{number:05d}.tfrecord" for number in range(len(parts))]
    assert b"".join(parts.values()) == written.tfrecord(records)
    sizes = [len(part) for part in parts.values()]
    assert max(sizes) <= 300
    assert min(map(sum, pairwise(sizes))) > 300
    assert (sum(done.records.values()), done.size, done.kept) == (40, sum(sizes), 0)
    assert written.values(Dataset(tmp_path / "data", batch_size=7)) == records


def test_the_index_beside_a_part_is_that_of_reading_it(tmp_path: Path) -> None:
    records = [bytes(100_000), *written.records(20), bytes(300_000), bytes(200_000), b""]
    write(records, str(tmp_path / "data"), part_bytes=1 << 30)
    (found,) = find_objects(tmp_path / "data")
    tfrecord = open_format("tfrecord")
    expected = tfrecord.marks(found)
    assert len(expected.offsets) == 3
    # Nothing is read for it.
    with Path(found.uri).open("r+b") as file:
        file.write(b"damage")
    damaged = find_objects(tmp_path / "data")
    (marks,) = make_index(damaged, "tfrecord", tfrecord).marks
    assert [[*marks.offsets], [*marks.numbers], marks.flaw] == [*expected]
    # Another size: it is not that of this file.
    part = Path(found.uri)
    part.write_bytes(written.tfrecord(records[:5]))
    assert Dataset(part, batch_size=1).records == 5


def test_each_class_has_a_folder(tmp_path: Path) -> None:
    records = written.records(60)
    classes = [f"c{number % 3}" if number % 10 else "rare" for number in range(60)]
    for kept in (False, True):
        done = write(zip(classes, records, strict=True), str(tmp_path / "data"), part_bytes=200)
        parts = files(tmp_path / "data")
        # Four open parts of classes are at most four full parts: none is cut early.
        for name in set(classes):
            mine = [content for key, content in parts.items() if key.startswith(f"{name}/")]
            ours = [record for one, record in zip(classes, records, strict=True) if one == name]
            assert b"".join(mine) == written.tfrecord(ours)
            assert len(mine) > 1
        assert done.kept == (len(parts) if kept else 0)
    assert Dataset(f"{tmp_path}/data/rare", batch_size=1).records == 6
    # With more classes than fit, the largest parts are cut early, and nothing is lost.
    many = [f"c{number % 30}" for number in range(60)]
    done = write(zip(many, records, strict=True), str(tmp_path / "many"), part_bytes=100)
    found = written.values(Dataset(tmp_path / "many", batch_size=9))
    assert sorted(found) == sorted(records)
    assert len(done.records) > 30


@pytest.mark.parametrize("seed", range(3))
def test_a_kill_costs_only_the_parts_that_are_not_complete(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    records = written.records(150)
    classes = [f"c{chance.randrange(3)}" for _ in records]
    folder = tmp_path / "data"

    def told(pipe: int) -> Iterator[tuple[str, bytes]]:
        for one in zip(classes, records, strict=True):
            os.write(pipe, b".")
            yield one

    kept: dict[Path, int] = {}
    for _ in range(6):
        read, pipe = os.pipe()
        child = os.fork()
        if not child:
            try:
                write(told(pipe), str(folder), part_bytes=400)
            finally:
                os._exit(0)
        os.close(pipe)
        for _ in range(chance.randrange(1, 150)):
            os.read(read, 1)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(read)
        for part in folder.rglob("part-*"):
            if part.with_name(f"_{part.name}.json").exists():
                assert kept.setdefault(part, part.stat().st_ino) == part.stat().st_ino
    done = write(zip(classes, records, strict=True), str(folder), part_bytes=400)
    assert all(part.stat().st_ino == inode for part, inode in kept.items())
    assert done.kept == len(kept)
    assert not [*folder.rglob(".tmp-*")]
    write(zip(classes, records, strict=True), str(tmp_path / "other"), part_bytes=400)
    assert files(folder) == files(tmp_path / "other")


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([], "there are no records to write"),
        ([b"a", 7], "record 1: a value of the type int is neither bytes nor a mapping"),
        ([b"a", ("cat", b"b")], "some records have a class, and others have none"),
        ([("a/b", b"")], "record 0: the class 'a/b' cannot be the name of a folder"),
        ([(3, b"")], "record 0: the class 3 cannot be the name of a folder"),
        ([{"x": 1}, {"x": {"y": 1}}], "record 1: feature 'x': a value of the type dict"),
    ],
)
def test_what_cannot_be_written_is_named(
    tmp_path: Path, records: Iterable[Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        write(records, str(tmp_path / "data"))


def test_other_data_is_never_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with pytest.raises(ConfigError, match="part_bytes = 0: must be at least 1"):
        write([b"a"], str(folder), part_bytes=0)
    write([b"a", b"b", b"c"], str(folder), part_bytes=20)
    before = files(folder)
    with pytest.raises(ConfigError, match=r"part-00001.tfrecord has other records; write to a new"):
        write([b"a", b"x", b"c"], str(folder), part_bytes=20)
    with pytest.raises(ConfigError, match=r"_part-00002.tfrecord.json and 1 more is not of this"):
        write([b"a", b"b"], str(folder), part_bytes=20)
    (folder / "notes.txt").touch()
    with pytest.raises(ConfigError, match=r"data: notes.txt is not of this data set"):
        write([b"a", b"b", b"c"], str(folder), part_bytes=20)
    (folder / "notes.txt").unlink()
    assert files(folder) == before
    # Parts of others have no index.
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "part-00000.tfrecord").write_bytes(b"theirs")
    with pytest.raises(ConfigError, match=r"part-00000.tfrecord has other records"):
        write([b"a"], str(tmp_path / "theirs"))
    assert files(tmp_path / "theirs") == {"part-00000.tfrecord": b"theirs"}


def test_examples_come_back() -> None:
    value = {
        "t": "é",
        "b": [b"", b"\0"],
        "i": [2**63 - 1, -1],
        "f": [0.5, -2],
        "n": None,
        "x": True,
    }
    found = decode_example(encode_example({**value, "a": np.arange(4.0).reshape(2, 2)}))
    assert {name: list(feature) for name, feature in found.items()} == {
        "t": ["é".encode()],
        "b": [b"", b"\0"],
        "i": [2**63 - 1, -1],
        "f": [0.5, -2],
        "x": [1],
        "a": [0, 1, 2, 3],
    }
    whole = encode_example(value)
    # Cut anywhere but between two features.
    for size in range(1, len(whole)):
        with pytest.raises(ValueError, match=r"not a tf.train.Example"):
            decode_example(whole[:size])
