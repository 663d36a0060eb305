"""Training data on a real S3 server, which is also killed, and on moto."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import islice

import pytest

from tests.data import written
from vinedresser.data import Dataset, write
from vinedresser.errors import ConfigError, KeyMissing, SourceChanged, StoreError
from vinedresser.objects import open_storage
from vinedresser.objects.s3_client import s3_client
from vinedresser.testing.s3_server import TestServer


def put_files(url: str, counts: list[int], *, longest: int = 40) -> list[bytes]:
    """Put TFRecord objects a, b, …; return all their records."""
    storage = open_storage(url)
    found = []
    for number, count in enumerate(counts):
        content = written.records(count, seed=number, longest=longest)
        storage.put(f"{chr(97 + number)}.tfrecord", [written.tfrecord(content)])
        found += content
    return found


def test_objects_are_read_like_files(s3: str) -> None:
    records = put_files(s3, [30, 7, 50], longest=3000)
    storage = open_storage(s3)
    storage.put("_SUCCESS", [b"x"])
    storage.put("empty.tfrecord", [b""])
    storage.put("deeper/d.tfrecord", [written.tfrecord([b"d"])])
    dataset = Dataset(f"{s3}/", batch_size=8, chunk_bytes=1000)
    assert dataset.uris == [f"{s3}/{name}.tfrecord" for name in ("a", "b", "c", "deeper/d")]
    batches = list(dataset)
    assert written.values(batches) == [*records, b"d"]
    assert batches[-1].origins[-1] == (f"{s3}/deeper/d.tfrecord", 0, 0)
    assert Dataset(f"{s3}/*.tfrecord", batch_size=8).records == 87
    assert Dataset(f"{s3}/[ab].tfrecord", batch_size=8).records == 37
    assert written.values(Dataset([f"{s3}/b.tfrecord"], batch_size=8)) == records[30:37]


@pytest.mark.parametrize("name", ["[ab].jsonl", "a*.jsonl", "what?x=1.jsonl", "a b+c%20ü.jsonl"])
def test_an_object_is_found_by_its_name_before_it_is_a_glob(s3: str, name: str) -> None:
    for number, key in enumerate([name, "a.jsonl", "aa.jsonl", "what-x=1.jsonl"]):
        open_storage(s3).put(key, [str(number).encode()])
    manifest = [{"prefix": f"{s3}/"}, name]
    open_storage(s3).put("train.manifest", [json.dumps(manifest).encode()])
    for source in (name, "train.manifest"):
        assert written.values(Dataset(f"{s3}/{source}", batch_size=8, format="jsonl")) == [0]


def test_a_manifest_names_objects(s3: str) -> None:
    records = put_files(s3, [3, 4, 5])
    manifest = [{"prefix": f"{s3}/"}, "c.tfrecord", "a.tfrecord"]
    open_storage(s3).put("train.manifest", [json.dumps(manifest).encode()])
    found = Dataset(f"{s3}/train.manifest", batch_size=5)
    assert written.values(found) == [*records[7:], *records[:3]]
    open_storage(s3).put("b.manifest", [json.dumps([*manifest, "missing.tfrecord"]).encode()])
    with pytest.raises(KeyMissing, match=f"b.manifest: {s3}/missing.tfrecord: no such object"):
        Dataset(f"{s3}/b.manifest", batch_size=5)
    open_storage(s3).put("c.manifest", [b'["a"]'])
    with pytest.raises(ConfigError, match=r"c.manifest: not a manifest; one looks like"):
        Dataset(f"{s3}/c.manifest", batch_size=5)


def test_what_is_not_there_is_named(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=f"{s3}/: there are no objects"):
        Dataset(f"{s3}/", batch_size=1)
    with pytest.raises(KeyMissing, match=f"{s3}/a.tfrecord: no such object"):
        Dataset(f"{s3}/a.tfrecord", batch_size=1)
    with pytest.raises(StoreError, match="there is no bucket missing"):
        Dataset("s3://missing/a.tfrecord", batch_size=1)
    with pytest.raises(ConfigError, match="has no bucket"):
        Dataset("s3://", batch_size=1)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StoreError, match="the secret key does not match"):
        Dataset(f"{s3}/", batch_size=1)


def test_a_permission_that_is_missing_is_named(
    s3: str, s3_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_files(s3, [5])
    for name, value in s3_server.stranger.items():
        monkeypatch.setenv(name, value)
    lacks = "access denied; the credentials need the permission s3:"
    for sources in (f"{s3}/", f"{s3}/a.tfrecord"):
        with pytest.raises(StoreError, match=rf"{s3}/a.tfrecord: {lacks}GetObject"):
            Dataset(sources, batch_size=1)
    # It looks whether the part is there before it puts it.
    with pytest.raises(StoreError, match=rf"part-00000.tfrecord\S*: {lacks}GetObject"):
        write([b"a"], f"{s3}/new")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "unknown")
    with pytest.raises(StoreError, match="unknown access key; check AWS_ACCESS_KEY_ID"):
        Dataset(f"{s3}/a.tfrecord", batch_size=1)


def test_an_object_that_is_replaced_is_an_error(s3: str) -> None:
    put_files(s3, [5])
    dataset = Dataset(f"{s3}/", batch_size=2)
    put_files(s3, [6])
    with pytest.raises(SourceChanged, match=f"{s3}/a.tfrecord: the object was replaced"):
        list(dataset)
    # The index of the old object is not used.
    assert Dataset(f"{s3}/", batch_size=2).records == 6


def test_a_data_set_is_written_to_s3_and_resumed(s3: str) -> None:
    records = written.records(50)
    pairs = [(f"c{number % 2}", record) for number, record in enumerate(records)]
    done = write(pairs, s3, part_bytes=400)
    assert sorted(done.records) == Dataset(f"{s3}/", batch_size=1).uris
    parts = open_storage(s3)
    keys = parts.list("")
    lost = [key for key in keys if "part-00001" in key]
    for key in lost:
        parts.delete(key)
    assert write(pairs, s3, part_bytes=400).kept == len(done.records) - len(lost) // 2
    assert parts.list("") == keys
    assert written.values(Dataset(f"{s3}/c1/", batch_size=4)) == records[1::2]
    with pytest.raises(StoreError, match="there is no bucket missing"):
        write(pairs, "s3://missing/data")


@pytest.mark.thorough
def test_a_forked_child_has_connections_of_its_own(s3: str) -> None:
    records = put_files(s3, [200], longest=3000)
    dataset = Dataset(f"{s3}/", batch_size=20, chunk_bytes=30_000)
    parent = iter(dataset)
    begun = written.values(islice(parent, 2))
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            whole = Dataset(f"{s3}/", batch_size=20)
            os.write(write, b"same" if written.values(whole) == records else b"different")
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    assert os.read(read, 20) == b"same"
    os.close(read)
    assert begun + written.values(parent) == records


@pytest.fixture(scope="module")
def moto_url() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    yield f"http://127.0.0.1:{server.get_host_and_port()[1]}"
    server.stop()


@pytest.mark.thorough
def test_moto_serves_the_same(moto_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto_url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    s3_client().create_bucket(Bucket="data")
    records = put_files("s3://data/a b+ü", [20, 30], longest=2000)
    dataset = Dataset("s3://data/a b+ü/", batch_size=7, chunk_bytes=1000)
    assert written.values(dataset) == records
    put_files("s3://data/a b+ü", [21, 30], longest=2000)
    with pytest.raises(SourceChanged, match="the object was replaced"):
        list(dataset)
