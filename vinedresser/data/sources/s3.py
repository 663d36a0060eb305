"""Objects on S3, read by ranged requests that continue at the last byte after a failure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from botocore import exceptions as boto

from vinedresser.errors import ConfigError, KeyMissing, SourceChanged
from vinedresser.objects.retrying import backoff, retry
from vinedresser.objects.s3_client import code_of, s3_client, translated

__all__ = ["S3Object", "find_object", "list_objects", "split_url"]

# Bytes that are kept if the connection breaks after them.
_PART = 1 << 20
# Seconds without a single byte after which a read fails; botocore itself repeats a request, too.
_PATIENCE = 90.0
_BROKEN = (boto.IncompleteReadError, boto.HTTPClientError, boto.ConnectionError)
_BUSY = frozenset({"SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout"})


@dataclass(frozen=True)
class S3Object:
    """See `DataObject`; the version is the ETag."""

    uri: str
    size: int
    version: str

    def read(self, start: int, stop: int) -> bytes:
        """See `DataObject.read`; an outage of up to 90 seconds is waited for."""
        parts: list[bytes] = []
        with translated(self.uri, str(s3_client().meta.endpoint_url)):
            while start < stop:
                received = retry(
                    partial(self._request, start, stop),
                    (boto.ClientError, *_BROKEN),
                    backoff(0.1, 5.0),
                    timeout=_PATIENCE,
                    when=_may_pass,
                )
                if not received:
                    raise SourceChanged(f"{self.uri}: ends at byte {start} of {self.size}")
                parts += received
                start += sum(map(len, received))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _request(self, start: int, stop: int) -> list[bytes]:
        """Send one request; return what arrived before the connection broke.

        Raises:
            SourceChanged: the object was replaced.
            botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError: nothing arrived.
        """
        bucket, key = split_url(self.uri)
        span = f"bytes={start}-{stop - 1}"
        parts: list[bytes] = []
        try:
            answer = s3_client().get_object(
                Bucket=bucket, Key=key, Range=span, IfMatch=self.version
            )
            while start < stop and (part := answer["Body"].read(min(_PART, stop - start))):
                parts.append(part)
                start += len(part)
        except boto.ClientError as error:
            if code_of(error) in ("PreconditionFailed", "412"):
                raise SourceChanged(
                    f"{self.uri}: the object was replaced while it was in use"
                ) from error
            raise
        except _BROKEN:
            if not parts:
                raise
        return parts


def split_url(url: str) -> tuple[str, str]:
    """Return bucket and key of ``s3://bucket/key``.

    Raises:
        ConfigError: there is no bucket.
    """
    bucket, _, key = url.removeprefix("s3://").partition("/")
    if not bucket:
        raise ConfigError(f"{url}: has no bucket; use s3://bucket/prefix/")
    return bucket, key


def find_object(url: str) -> S3Object:
    """Return an object.

    Raises:
        KeyMissing: there is none.
        StoreError: the storage refused.
    """
    bucket, key = split_url(url)
    with translated(url, str(s3_client().meta.endpoint_url)):
        try:
            found = s3_client().head_object(Bucket=bucket, Key=key)
        except boto.ClientError as error:
            # The response to HEAD has no body: a missing bucket looks like a missing object.
            if code_of(error) == "404":
                s3_client().list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1)
                raise KeyMissing(f"{url}: no such object") from error
            raise
    return S3Object(url, int(found["ContentLength"]), str(found["ETag"]))


def list_objects(url: str) -> Iterator[S3Object]:
    """Yield the objects whose URL begins with ``url``, in the order of their keys.

    Raises:
        StoreError: the storage refused.
    """
    bucket, prefix = split_url(url)
    with translated(url, str(s3_client().meta.endpoint_url)):
        pages = s3_client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        entries: list[dict[str, Any]] = [one for page in pages for one in page.get("Contents", ())]
    # Not every server sorts as S3 does, by bytes.
    for entry in sorted(entries, key=lambda one: str(one["Key"]).encode()):
        yield S3Object(f"s3://{bucket}/{entry['Key']}", int(entry["Size"]), str(entry["ETag"]))


def _may_pass(error: Exception) -> bool:
    """Return whether a request may succeed if it is sent again: the server is busy, or away."""
    if not isinstance(error, boto.ClientError):
        return True
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return code_of(error) in _BUSY or status in (429, 500, 502, 503, 504)
