"""Storing an object on S3, in one request or in parts, and reading it back."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import fastcrc
from botocore import exceptions as boto

from vinedresser.objects.base import Buffer
from vinedresser.objects.retrying import retry
from vinedresser.objects.s3_client import code_of, was_retried

__all__ = ["split_chunks", "put_parts", "put_object", "get_object"]

# Seconds before a conditional put that conflicted with another one (409) is sent again.
_CONFLICT_PAUSES = (0.05, 0.1, 0.2, 0.4)
# Seconds before an object is requested again whose transfer broke off.
_READ_PAUSES = (0.1, 0.2, 0.4)
_BROKEN_OFF = (boto.IncompleteReadError, boto.ResponseStreamingError, boto.ReadTimeoutError)


def put_object(client: Any, where: dict[str, Any], body: bytes, condition: dict[str, str]) -> None:
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
        if not (taken and was_retried(error) and get_object(client, where) == body):
            raise


def put_parts(
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


def get_object(client: Any, where: dict[str, Any]) -> bytes:
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
