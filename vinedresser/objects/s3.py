"""Storage on S3, where every put is atomic."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import fastcrc
from botocore import exceptions as boto

from vinedresser.errors import ConfigError, KeyMissing, StoreError
from vinedresser.objects.base import Buffer, Span, check_key, get_or_none
from vinedresser.objects.read_ahead import read_ahead
from vinedresser.objects.retrying import retry
from vinedresser.objects.s3_client import CONNECTIONS, code_of, s3_client, translated, was_retried

__all__ = ["S3Storage", "split_chunks"]

# Size above which an object is uploaded in parts, and of each part but the last.
_PART = 64 << 20

# Seconds before a conditional put that conflicted with another one (409) is sent again.
_CONFLICT_PAUSES = (0.05, 0.1, 0.2, 0.4)
# Seconds before an object is requested again whose transfer broke off.
_READ_PAUSES = (0.1, 0.2, 0.4)
_BROKEN_OFF = (boto.IncompleteReadError, boto.ResponseStreamingError, boto.ReadTimeoutError)


class S3Storage:
    """A prefix in a bucket as storage; usable by several threads and after a fork.

    Args:
        location: ``s3://bucket`` or ``s3://bucket/prefix``.

    Raises:
        ConfigError: the URL has no bucket.
        StoreError: the configuration for S3 is invalid.
    """

    def __init__(self, location: str) -> None:
        bucket, _, prefix = location.removeprefix("s3://").rstrip("/").partition("/")
        if not bucket:
            raise ConfigError(f"{location}: has no bucket; use s3://bucket/prefix")
        if prefix:
            check_key(prefix)
        self._location = location.rstrip("/")
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        with translated(self._location):
            try:
                s3_client()
            except ValueError as error:
                raise StoreError(
                    f"{location}: {error}; AWS_ENDPOINT_URL must have the form http://host:port"
                ) from error

    @property
    def location(self) -> str:
        """The URL as given."""
        return self._location

    def put(self, key: str, parts: Iterable[Buffer], *, exclusive: bool = False) -> None:
        """See `Storage.put`; an object of more than 64 MiB is uploaded in parts of that size."""
        where = self._where(key)
        pieces = split_chunks(parts, _PART)
        first = [next(pieces), *itertools.islice(pieces, 1)]
        condition = {"IfNoneMatch": "*"} if exclusive else {}
        with translated(self._url(key), self._endpoint):
            if len(first) == 1:
                _put_object(s3_client(), where, first[0], condition)
            else:
                _put_parts(s3_client(), where, itertools.chain(first, pieces), condition)

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """See `Storage.get`."""
        where = self._where(key)
        if length == 0:
            if not self.exists(key):
                raise KeyMissing(f"{self._url(key)}: no such object")
            return b""
        if start or length is not None:
            last = "" if length is None else start + length - 1
            where["Range"] = f"bytes={start}-{last}"
        with translated(self._url(key), self._endpoint):
            return _get_object(s3_client(), where)

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """See `Storage.get_many`; sends up to 16 requests at a time."""
        if len(keys) < 2:
            return [get_or_none(self, key) for key in keys]
        with ThreadPoolExecutor(min(CONNECTIONS, len(keys))) as pool:
            return [*pool.map(partial(get_or_none, self), keys)]

    def get_spans(self, spans: Iterable[Span]) -> Iterator[bytes | None]:
        """See `Storage.get_spans`."""
        return read_ahead(
            spans,
            lambda span: get_or_none(self, *span),
            size=lambda span: span.length,
            max_concurrent=CONNECTIONS,
        )

    def exists(self, key: str) -> bool:
        """See `Storage.exists`."""
        where = self._where(key)
        with translated(self._url(key), self._endpoint):
            try:
                s3_client().head_object(**where)
            except boto.ClientError as error:
                # The response to HEAD has no body, and so no error code.
                if code_of(error) in ("404", "NoSuchKey", "NotFound"):
                    return False
                raise
        return True

    def folders(self, prefix: str = "") -> list[str]:
        """See `Storage.folders`."""
        where = {"Bucket": self._bucket, "Prefix": self._prefix + prefix, "Delimiter": "/"}
        with translated(self._url(prefix), self._endpoint):
            pages = s3_client().get_paginator("list_objects_v2").paginate(**where)
            found = [one["Prefix"] for page in pages for one in page.get("CommonPrefixes", ())]
        cut = len(self._prefix + prefix)
        return sorted(name[cut:-1] for name in found)

    def list(self, prefix: str, after: str = "") -> list[str]:
        """See `Storage.list`."""
        where = {"Bucket": self._bucket, "Prefix": self._prefix + prefix}
        if after:
            where["StartAfter"] = self._prefix + after
        cut = len(self._prefix)
        with translated(self._url(prefix), self._endpoint):
            pages = s3_client().get_paginator("list_objects_v2").paginate(**where)
            keys = [entry["Key"][cut:] for page in pages for entry in page.get("Contents", ())]
        # Not every server sorts as S3 does, by bytes.
        return sorted(key for key in keys if key > after)

    def delete(self, key: str) -> None:
        """See `Storage.delete`."""
        where = self._where(key)
        with translated(self._url(key), self._endpoint):
            s3_client().delete_object(**where)

    @property
    def _endpoint(self) -> str:
        return str(s3_client().meta.endpoint_url)

    def _where(self, key: str) -> dict[str, Any]:
        check_key(key)
        return {"Bucket": self._bucket, "Key": self._prefix + key}

    def _url(self, key: str) -> str:
        return f"{self._location}/{key}"


def _put_object(client: Any, where: dict[str, Any], body: bytes, condition: dict[str, str]) -> None:
    """Store an object with one request.

    A condition that failed because an earlier attempt of the same put took the key, and only its
    answer was lost, counts as fulfilled.

    Args:
        where: bucket and key.
        body: content of the object.
        condition: condition of the put, such as ``{"IfNoneMatch": "*"}``.

    Raises:
        botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError: the put failed.
    """
    checksum = _checksum(body)
    try:
        retry(
            lambda: client.put_object(**where, Body=body, ChecksumCRC32C=checksum, **condition),
            boto.ClientError,
            _CONFLICT_PAUSES,
            when=lambda error: code_of(error) == "ConditionalRequestConflict",
        )
    except boto.ClientError as error:
        taken = code_of(error) in ("PreconditionFailed", "412")
        if not (taken and was_retried(error) and _get_object(client, where) == body):
            raise


def _put_parts(
    client: Any, where: dict[str, Any], bodies: Iterable[bytes], condition: dict[str, str]
) -> None:
    """Store an object in parts; it becomes visible when the last part is complete.

    Args:
        where: bucket and key.
        bodies: the parts, each but the last of at least 5 MiB.
        condition: condition of the put, such as ``{"IfNoneMatch": "*"}``.

    Raises:
        botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError: the upload failed.
    """
    upload = client.create_multipart_upload(**where, ChecksumAlgorithm="CRC32C")["UploadId"]
    try:
        sent: list[dict[str, Any]] = []
        for number, body in enumerate(bodies, start=1):
            part = {"PartNumber": number, "ChecksumCRC32C": _checksum(body)}
            answer = client.upload_part(**where, UploadId=upload, Body=body, **part)
            sent.append({**part, "ETag": answer["ETag"]})
        client.complete_multipart_upload(
            **where, UploadId=upload, MultipartUpload={"Parts": sent}, **condition
        )
    except BaseException:
        # Parts of an incomplete upload would be stored, and billed, forever.
        with suppress(boto.ClientError, boto.BotoCoreError, boto.HTTPClientError):
            client.abort_multipart_upload(**where, UploadId=upload)
        raise


def _get_object(client: Any, where: dict[str, Any]) -> bytes:
    """Return the content of an object, or of a range of it.

    Args:
        where: bucket, key and optionally range.

    Raises:
        botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError: the request failed.
    """
    try:
        return retry(
            lambda: bytes(client.get_object(**where)["Body"].read()), _BROKEN_OFF, _READ_PAUSES
        )
    except boto.ClientError as error:
        if code_of(error) in ("InvalidRange", "416"):
            # The range begins behind the end of the object.
            return b""
        raise


def split_chunks(parts: Iterable[Buffer], size: int) -> Iterator[bytes]:
    """Split the concatenation of buffers into chunks; at least one, the last may be smaller.

    Args:
        parts: drawn once, in order; each must not be modified until its chunk was yielded.
        size: size of a chunk in bytes.

    Yields:
        The chunks; a `bytes` object that is a whole chunk is not copied.
    """
    views: list[memoryview] = []
    room = size
    none_yet = True
    for part in parts:
        view = memoryview(part)
        # An empty view cannot be cast.
        if not view.nbytes:
            continue
        view = view.cast("B")
        while view.nbytes >= room:
            yield _joined([*views, view[:room]])
            view, views, room, none_yet = view[room:], [], size, False
        if view.nbytes:
            views.append(view)
            room -= view.nbytes
    if views or none_yet:
        yield _joined(views)


def _joined(views: list[memoryview]) -> bytes:
    if len(views) == 1:
        whole = views[0].obj
        if isinstance(whole, bytes) and len(whole) == views[0].nbytes:
            return whole
    return b"".join(views)


def _checksum(body: bytes) -> str:
    """Return the checksum that S3 verifies: CRC32C, big-endian, in base64."""
    return base64.b64encode(fastcrc.crc32.iscsi(body).to_bytes(4)).decode()
