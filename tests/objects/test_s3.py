"""S3 as storage, on a real server (SeaweedFS) and on a second kind of server (moto)."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vinedresser.errors import ConfigError, KeyMissing, KeyTaken, StoreError, StoreFull
from vinedresser.objects import open_storage
from vinedresser.objects.base import Buffer
from vinedresser.objects.s3 import split_chunks
from vinedresser.objects.s3_client import s3_client
from vinedresser.testing.s3_server import BUCKET, seaweed
from vinedresser.testing.storage import StorageConformance


class TestSeaweed(StorageConformance):
    @pytest.fixture
    def location(self, s3: str) -> str:
        return s3


@pytest.fixture(scope="module")
def moto_url() -> Iterator[str]:
    code = (
        "import sys, moto.server; server = moto.server.ThreadedMotoServer('127.0.0.1', 0, "
        "verbose=False); server.start(); print(server.get_host_and_port()[1], flush=True); "
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
        server.kill()


# The same tests as on SeaweedFS.
@pytest.mark.thorough
class TestMoto(StorageConformance):
    # moto 5 closes an object's buffer when it is replaced, also while another request reads it, and
    # answers 500; that is its own fault, and SeaweedFS above shows that ours are whole.
    test_concurrent_puts_of_one_key_are_atomic = None  # type: ignore[assignment]

    @pytest.fixture
    def location(self, moto_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
        monkeypatch.setenv("AWS_ENDPOINT_URL", moto_url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
        bucket = f"bucket-{os.getpid()}-{abs(hash(tmp_path)) % 10**9}"
        s3_client().create_bucket(Bucket=bucket)
        return f"s3://{bucket}"


def test_a_url_without_a_bucket_is_refused() -> None:
    with pytest.raises(ConfigError, match="has no bucket"):
        open_storage("s3://")


@pytest.mark.thorough
def test_a_listing_has_more_than_one_page(s3: str) -> None:
    storage = open_storage(s3)
    keys = [f"index/{number:05d}" for number in range(110)]
    for key in keys:
        storage.put(key, [b""])
    client = s3_client()
    pages: list[int] = []

    def shorten(params: dict[str, Any], **_: Any) -> None:
        params["MaxKeys"] = 50

    def note(parsed: dict[str, Any], **_: Any) -> None:
        pages.append(parsed["KeyCount"])

    hooks = (
        ("provide-client-params.s3.ListObjectsV2", shorten),
        ("after-call.s3.ListObjectsV2", note),
    )
    for event, hook in hooks:
        client.meta.events.register(event, hook)
    try:
        assert storage.list("index/") == keys
        assert storage.list("index/", after=keys[30]) == keys[31:]
    finally:
        for event, hook in hooks:
            client.meta.events.unregister(event, hook)
    assert pages == [50, 50, 10, 50, 29]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "sizes",
    [
        [100],
        [64 << 20, 5],
        pytest.param([1, 70 << 20, 64 << 20, 3], marks=pytest.mark.slow),
    ],
)
def test_large_objects_are_uploaded_in_parts(s3: str, sizes: list[int]) -> None:
    storage = open_storage(s3)
    parts = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    storage.put("large", iter(parts), exclusive=True)
    assert storage.get("large") == b"".join(parts)
    with pytest.raises(KeyTaken, match="large: already exists"):
        storage.put("large", parts, exclusive=True)
    listed = s3_client().list_multipart_uploads(Bucket=BUCKET, Prefix=s3.rpartition("/")[2])
    assert not listed.get("Uploads")


def test_chunks_concatenate_to_the_parts() -> None:
    parts: list[Buffer] = [b"abc", b"", bytearray(b"d"), memoryview(b"efghijkl"), b"m"]
    for size in range(1, 15):
        pieces = list(split_chunks(parts, size))
        assert b"".join(pieces) == b"abcdefghijklm"
        assert all(len(piece) == size for piece in pieces[:-1])
        assert 0 < len(pieces[-1]) <= size
    assert list(split_chunks([], 4)) == [b""]
    whole = b"whole"
    assert next(split_chunks([whole], 64)) is whole


def test_a_client_of_the_parent_is_not_used_by_a_forked_child(s3: str) -> None:
    storage = open_storage(s3)
    storage.put("key", [b"x"])
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(write, storage.get("key"))
        finally:
            os._exit(0)
    os.close(write)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert os.read(read, 10) == b"x"
    assert storage.get("key") == b"x"
    os.close(read)


def test_an_upload_with_a_wrong_checksum_is_refused(
    s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = s3_client()

    def flip(request: Any, **_: Any) -> None:
        request.body = io.BytesIO(b"torn" + request.body.read()[4:])

    client.meta.events.register("before-send.s3.PutObject", flip)
    try:
        with pytest.raises(StoreError):
            open_storage(s3).put("key", [b"whole object"])
    finally:
        client.meta.events.unregister("before-send.s3.PutObject", flip)
    assert not open_storage(s3).exists("key")


NOTHING = {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None}
REFUSALS: list[tuple[dict[str, str | None], str]] = [
    ({"AWS_ACCESS_KEY_ID": "unknown"}, "check AWS_ACCESS_KEY_ID"),
    ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "check AWS_SECRET_ACCESS_KEY"),
    ({**NOTHING, "AWS_EC2_METADATA_DISABLED": "true"}, "no credentials for S3"),
    ({"AWS_SECRET_ACCESS_KEY": None}, "no credentials for S3"),
    ({"AWS_PROFILE": "nobody"}, "the profile in AWS_PROFILE is not in"),
    ({"AWS_ENDPOINT_URL": "nonsense"}, "AWS_ENDPOINT_URL must have the form"),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("changes", "sentence"), REFUSALS)
def test_an_error_suggests_a_correction(
    s3: str, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str | None], sentence: str
) -> None:
    for name, value in changes.items():
        if value is None:
            monkeypatch.delenv(name)
        else:
            monkeypatch.setenv(name, value)
    with pytest.raises(StoreError, match=sentence) as caught:
        open_storage(s3).get("key")
    assert str(caught.value).startswith(s3)


def test_a_missing_bucket_is_named(s3: str) -> None:
    with pytest.raises(StoreError, match="there is no bucket not-made"):
        open_storage("s3://not-made/run").put("key", [b"x"])
    with pytest.raises(StoreError, match="there is no bucket not-made") as caught:
        open_storage("s3://not-made/run").get("key")
    assert not isinstance(caught.value, KeyMissing)


def test_an_unreachable_server_is_named(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        nobody = f"http://127.0.0.1:{probe.getsockname()[1]}"
    monkeypatch.setenv("AWS_ENDPOINT_URL", nobody)
    with pytest.raises(StoreError, match=f"no server answers at {nobody}; check AWS_ENDPOINT_URL"):
        open_storage(s3).put("key", [b"x"])


@pytest.mark.thorough
def test_a_full_server_raises_and_keeps_its_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with seaweed(tmp_path, volume_megabytes=1, volumes=1) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        storage = open_storage(f"s3://{BUCKET}/run")
        stored: list[str] = []

        def fill() -> None:
            while len(stored) < 100:
                storage.put(str(len(stored)), [bytes([len(stored)]) * 300_000])
                stored.append(str(len(stored)))

        with pytest.raises(StoreFull, match=r"s3://tests/run/\d+: .* no space left"):
            fill()
        assert storage.list("") == sorted(stored)
        assert storage.get("1") == bytes([1]) * 300_000


def test_without_boto3_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['botocore'] = None\n"
        "from vinedresser.errors import MissingDependency\n"
        "from vinedresser.objects import open_storage\n"
        "try: open_storage('s3://bucket/run')\n"
        "except MissingDependency as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'pip install "vinedresser[s3]"' in done.stdout
