"""Objects on S3, read by ranged requests that continue at the last byte after a failure."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from threading import Condition
from typing import Any

from botocore import exceptions as boto
from botocore.awsrequest import AWSRequest
from botocore.response import StreamingBody

from vinedresser.errors import ConfigError, KeyMissing, SourceChanged, StoreError
from vinedresser.objects.hedging import hedge
from vinedresser.objects.retrying import backoff, retry
from vinedresser.objects.s3_client import code_of, s3_client, translated

__all__ = [
    "S3Object",
    "Throttle",
    "find_object",
    "has_opaque_etag",
    "list_objects",
    "split_url",
    "throttle",
]

# Bytes that are received at a time: joining smaller parts costs as much processor time as receiving
# them. What has arrived of a part is lost if the connection is reset, not if it ends.
_PART = 4 << 20
# Seconds without a single byte after which a read fails.
_PATIENCE = 90.0
# Seconds for which a signed URL is valid; it is used in the first half of them.
_VALID = 300
_BROKEN = (boto.IncompleteReadError, boto.HTTPClientError, boto.ConnectionError)
_BUSY = frozenset({429, 500, 502, 503, 504})


@dataclass(frozen=True)
class S3Object:
    """See `DataObject`; the version is the ETag."""

    uri: str
    size: int
    version: str

    def read(self, start: int, stop: int) -> bytes:
        """See `DataObject.read`; an outage of up to 90 seconds is waited for."""
        return hedge().read(partial(self._read, start, stop), stop - start)

    def _read(self, start: int, stop: int) -> bytes:
        parts: list[bytes] = []
        client = s3_client()
        with translated(self.uri, str(client.meta.endpoint_url)):
            while start < stop:
                received = retry(
                    partial(self._request, client, start, stop),
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

    def _request(self, client: Any, start: int, stop: int) -> list[bytes]:
        """Send one request; return what arrived before the connection broke."""
        parts: list[bytes] = []
        try:
            with throttle().request(_is_busy):
                body = self._body(client, start, stop)
                while start < stop and (part := body.read(min(_PART, stop - start))):
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

    def _body(self, client: Any, start: int, stop: int) -> Any:
        """Send one request; return the body of its response.

        A signed URL, sent over the client's connections, takes a third of the processor time of
        ``get_object``, which is left with what needs more than that: redirects and errors.
        """
        bucket, key = split_url(self.uri)
        span = f"bytes={start}-{stop - 1}"
        url = _signed(client, bucket, key, int(time.monotonic() / (_VALID / 2)))
        headers = {"Range": span, "If-Match": self.version}
        request = AWSRequest("GET", url, headers, stream_output=True)
        response = client._endpoint.http_session.send(request.prepare())
        if response.status_code == 206:
            return StreamingBody(response.raw, stop - start)
        # Reading the rest makes the connection free for the next request.
        reason = response.text
        if response.status_code in _BUSY:
            raise boto.ClientError(
                {
                    "Error": {"Code": str(response.status_code), "Message": reason},
                    "ResponseMetadata": {"HTTPStatusCode": response.status_code},
                },
                "GetObject",
            )
        answer = client.get_object(Bucket=bucket, Key=key, Range=span, IfMatch=self.version)
        if start and "ContentRange" not in answer:
            raise StoreError(f"{self.uri}: the server ignores the header Range")
        return answer["Body"]


@lru_cache(maxsize=64)
def _signed(client: Any, bucket: str, key: str, _period: int) -> str:
    """Return a signed URL of an object, the same within a period."""
    asked = {"Bucket": bucket, "Key": key}
    return str(client.generate_presigned_url("get_object", Params=asked, ExpiresIn=_VALID))


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
            # The response to HEAD has no body: a missing bucket looks like a missing object, and
            # unknown credentials like those that may not read it.
            if code_of(error) not in ("403", "404"):
                raise
            s3_client().list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1)
            if code_of(error) == "404":
                raise KeyMissing(f"{url}: no such object") from error
            raise StoreError(
                f"{url}: access denied; the credentials need the permission s3:GetObject"
            ) from error
    return S3Object(url, int(found["ContentLength"]), str(found["ETag"]))


def has_opaque_etag(url: str) -> bool:
    """Return whether the ETag of an object is no digest of its content.

    It is encrypted with a key of KMS or of the user's, or in a directory bucket.

    Raises:
        StoreError: the storage refused.
    """
    bucket, key = split_url(url)
    if bucket.endswith("--x-s3"):
        return True
    with translated(url, str(s3_client().meta.endpoint_url)):
        found = s3_client().head_object(Bucket=bucket, Key=key)
    kind = str(found.get("ServerSideEncryption", "AES256"))
    return kind != "AES256" or "SSECustomerAlgorithm" in found


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
    return not isinstance(error, boto.ClientError) or _is_busy(error)


def _is_busy(error: Exception) -> bool:
    """Return whether a server has refused a request that it may answer later."""
    if not isinstance(error, boto.ClientError):
        return False
    return error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") in _BUSY


class Throttle:
    """A limit of concurrent requests: halved by a busy server, and raised by one per round.

    Additive increase, multiplicative decrease (Chiu and Jain 1989).

    Attributes:
        limit: maximum number of requests; infinite until the server is busy for the first time.
    """

    def __init__(self) -> None:
        self.limit = float("inf")
        self._changed = Condition()
        self._active = 0
        # Requests that were under way when the limit was reduced must not reduce it again.
        self._reductions = 0

    @contextmanager
    def request(self, is_busy: Callable[[Exception], bool]) -> Iterator[None]:
        """Wait until a request may be sent; the block sends it.

        Args:
            is_busy: whether an error of the block says that the server is busy.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._active < max(self.limit, 1.0))
            self._active += 1
            reductions = self._reductions
        try:
            yield
        except Exception as error:
            if is_busy(error):
                with self._changed:
                    if reductions == self._reductions:
                        self._reductions += 1
                        self.limit = max(self._active / 2, 1.0)
            raise
        else:
            with self._changed:
                self.limit += 1 / self.limit
        finally:
            with self._changed:
                self._active -= 1
                self._changed.notify_all()


def throttle() -> Throttle:
    """Return the throttle of this process."""
    return _throttle(os.getpid())


@lru_cache(maxsize=1)
def _throttle(_pid: int) -> Throttle:
    return Throttle()
