"""Putting an object on S3: in one request, or in parts where it is large."""

from __future__ import annotations

import base64
import itertools
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import fastcrc
from botocore import exceptions as boto

from vinedresser.store.storage.base import Buffer
from vinedresser.store.storage.s3_errors import code_of, was_retried

__all__ = ["split_chunks", "put_parts", "put_object", "get_object"]

# Answers that broke off on their way are asked for again so many times.
_READS = 4
# A conditional put that met another one on its way is sent again so many times (409).
_MEETINGS = 5


def put_object(client: Any, where: dict[str, Any], body: bytes, condition: dict[str, str]) -> None:
    """Put an object with one request.

    Args:
        client: of boto3.
        where: bucket and key.
        body: all of it.
        condition: under which it is put, such as ``{"IfNoneMatch": "*"}``.

    Raises:
        botocore's errors; the condition's is left out where it was an earlier attempt of this same
        put that took the key, its answer having been lost.
    """
    checksum = _checksum(body)
    for meeting in range(_MEETINGS):
        try:
            client.put_object(**where, Body=body, ChecksumCRC32C=checksum, **condition)
        except boto.ClientError as error:
            if code_of(error) == "ConditionalRequestConflict" and meeting < _MEETINGS - 1:
                time.sleep(0.05 * 2**meeting)
                continue
            taken = code_of(error) in ("PreconditionFailed", "412")
            if not (taken and was_retried(error) and get_object(client, where) == body):
                raise
        return


def put_parts(
    client: Any, where: dict[str, Any], bodies: Iterable[bytes], condition: dict[str, str]
) -> None:
    """Put an object in parts; nobody sees any of it before the last of them is there.

    Args:
        client: of boto3.
        where: bucket and key.
        bodies: the parts, each but the last of at least 5 MiB.
        condition: under which it is put.

    Raises:
        botocore's errors.
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
        # Parts that nobody completes cost their room for ever.
        with suppress(boto.ClientError, boto.BotoCoreError, boto.HTTPClientError):
            client.abort_multipart_upload(**where, UploadId=upload)
        raise


def get_object(client: Any, where: dict[str, Any]) -> bytes:
    """Return the bytes of an object, or of the range of it that is asked for.

    Args:
        client: of boto3.
        where: bucket and key, and the range if any.

    Raises:
        botocore's errors.
    """
    for pause in itertools.count():
        try:
            return bytes(client.get_object(**where)["Body"].read())
        except boto.ClientError as error:
            if code_of(error) in ("InvalidRange", "416"):
                # The range begins where the object has ended already.
                return b""
            raise
        except (boto.IncompleteReadError, boto.ResponseStreamingError, boto.ReadTimeoutError):
            if pause == _READS - 1:
                raise
            time.sleep(0.1 * 2**pause)
    raise AssertionError("the loop has no end")


def split_chunks(parts: Iterable[Buffer], size: int) -> Iterator[bytes]:
    """Cut the concatenation of buffers into pieces of one size; at least one, the last smaller.

    Args:
        parts: drawn once, in order; each must stay as it is until its piece was taken.
        size: of a piece, in bytes.

    Yields:
        The pieces; a buffer that makes a piece by itself and is of the type bytes is not copied.
    """
    views: list[memoryview] = []
    room = size
    none_yet = True
    for part in parts:
        view = memoryview(part)
        # A view with a zero in its shape cannot be cast, and has nothing to give.
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
    """Return what S3 checks a body by: its CRC32C, big-endian, in base64."""
    return base64.b64encode(fastcrc.crc32.iscsi(body).to_bytes(4)).decode()
