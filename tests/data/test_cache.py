"""The cache of data on S3: shared, bounded, verified."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.data import written
from vinedresser.data import Dataset, write
from vinedresser.data.sources.cached import CachedObject
from vinedresser.errors import ConfigError
from vinedresser.objects import open_storage
from vinedresser.quantities import parse_size

BLOCK = 4 << 20


@dataclass(frozen=True)
class Slow:
    """An object whose reads are noted in a file, a byte each."""

    uri: str
    content: bytes
    log: str
    version: str = "1"

    @property
    def size(self) -> int:
        return len(self.content)

    def read(self, start: int, stop: int) -> bytes:
        with open(self.log, "ab") as file:
            file.write(b".")
        time.sleep(0.02)
        return self.content[start:stop]


@pytest.fixture
def cached(tmp_path: Path) -> Callable[..., CachedObject]:
    content = os.urandom(3 * BLOCK + 1000)

    def make(version: str = "1", most: int = 1 << 30) -> CachedObject:
        inner = Slow("s3://bucket/a", content, str(tmp_path / "log"), version)
        return CachedObject(inner, str(tmp_path / "cache"), most)

    return make


def loads(one: CachedObject) -> int:
    assert isinstance(one.inner, Slow)
    return os.path.getsize(one.inner.log)


def content(one: CachedObject) -> bytes:
    assert isinstance(one.inner, Slow)
    return one.inner.content


def blocks(one: CachedObject) -> list[Path]:
    found = [path for path in Path(one.folder).glob("*/*") if path.is_file()]
    return sorted(found, key=lambda path: path.stat().st_mtime_ns)


def test_any_range_is_that_of_the_object(cached: Callable[..., CachedObject]) -> None:
    one = cached()
    for _ in range(2):
        for start, stop in (
            (0, 10),
            (BLOCK - 5, BLOCK + 5),
            (5, one.size),
            (7, 7),
            (BLOCK, 2 * BLOCK),
        ):
            assert one.read(start, stop) == content(one)[start:stop]
    assert loads(one) == 4
    assert sum(path.stat().st_size for path in blocks(one)) == one.size + 4 * 4
    # Another version is another object.
    assert cached("2").read(0, 5) == content(one)[:5]
    assert loads(one) == 5


@pytest.mark.thorough
def test_processes_that_read_at_once_load_each_block_once(
    cached: Callable[..., CachedObject],
) -> None:
    one = cached()
    children = []
    for _ in range(6):
        child = os.fork()
        if not child:
            code = 1
            try:
                code = int(one.read(0, one.size) != content(one))
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 6
    assert loads(one) == 4


def test_the_oldest_blocks_make_room(cached: Callable[..., CachedObject]) -> None:
    most = 3 * (BLOCK + 4)
    one = cached(most=most)
    for number in (0, 1, 2, 0):
        one.read(number * BLOCK, number * BLOCK + 1)
    assert loads(one) == 3
    _, kept = blocks(one)[0], blocks(one)[-1]
    one.read(3 * BLOCK, one.size)
    # The last block is small; there is room for two large ones beside it.
    assert sum(path.stat().st_size for path in blocks(one)) <= most
    assert kept in blocks(one)
    one.read(0, 1)
    assert loads(one) == 4
    one.read(BLOCK, BLOCK + 1)
    assert loads(one) == 5
    assert sum(path.stat().st_size for path in blocks(one)) <= most
    # The sum is counted again if it is lost, or was left by somebody else.
    (Path(one.folder) / "size").write_bytes(b"damaged")
    one.read(0, one.size)
    assert sum(path.stat().st_size for path in blocks(one)) <= most
    # A block that is larger than the cache is not kept.
    small = cached("2", most=BLOCK)
    assert small.read(0, 10) == content(one)[:10]
    assert sum(path.stat().st_size for path in blocks(one)) <= most


def test_a_damaged_block_is_loaded_again(cached: Callable[..., CachedObject]) -> None:
    one = cached()
    one.read(0, 1)
    (block,) = blocks(one)
    whole = bytearray(block.read_bytes())
    for damaged in (bytes(whole[:1000]), bytes([whole[0] ^ 1]) + bytes(whole[1:]), b""):
        block.write_bytes(damaged)
        assert one.read(0, 10) == content(one)[:10]
        assert block.read_bytes() == whole
    assert loads(one) == 4


def test_a_cache_that_cannot_be_written_is_warned_of(
    cached: Callable[..., CachedObject], caplog: pytest.LogCaptureFixture
) -> None:
    one = cached()
    Path(one.folder).write_bytes(b"in the way")
    for _ in range(2):
        assert one.read(0, BLOCK + 1) == content(one)[: BLOCK + 1]
    (warning,) = caplog.messages
    assert warning.endswith("File exists")
    assert "the cache of training data cannot be used" in warning


def test_a_data_set_on_s3_is_read_once(
    s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("VINEDRESSER_DATA_CACHE", "20 MB")
    records = written.records(200)
    write(records, s3)
    dataset = Dataset(f"{s3}/", batch_size=9, chunk_bytes=1000)
    assert written.values(dataset) == records
    (block,) = (tmp_path / "vinedresser" / "data" / "blocks").glob("*/*")
    # Nothing is read from S3 any more.
    open_storage(s3).delete("part-00000.tfrecord")
    assert written.values(dataset) == records
    assert block.stat().st_size == len(written.tfrecord(records)) + 4
    monkeypatch.setenv("VINEDRESSER_DATA_CACHE", "much")
    with pytest.raises(
        ConfigError, match='VINEDRESSER_DATA_CACHE: must be a size such as "500 MB"'
    ):
        Dataset(tmp_path, batch_size=9, format="files")


def test_sizes_are_read() -> None:
    sizes = {"20GB": 20 * 10**9, "1.5 MB": 1_500_000, "8 GiB": 8 << 30, "2 kB": 2000, "1TB": 10**12}
    assert {text: parse_size(text) for text in sizes} == sizes
    for wrong in ("20", "GB", "20 G", "-1 GB", "0 GB", 20, None, "1e3 GB"):
        with pytest.raises(ValueError, match="must be a size"):
            parse_size(wrong)
