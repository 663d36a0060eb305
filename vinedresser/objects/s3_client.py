"""The S3 client, one per process, and its errors as one clear sentence."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import boto3
from botocore import exceptions as boto
from botocore.config import Config

from vinedresser.errors import KeyMissing, KeyTaken, StoreError, StoreFull

__all__ = ["CONNECTIONS", "code_of", "s3_client", "translated", "was_retried"]

# Concurrent requests per client: S3 delivers about 40 MB/s and 30 requests a second per connection,
# and 16 connections were ten times as fast as one.
CONNECTIONS = 16

_AMAZON = (".amazonaws.com", ".amazonaws.com.cn")
_MISSING = frozenset({"NoSuchKey", "404", "NotFound"})
_TAKEN = frozenset({"PreconditionFailed", "412"})
_FULL = frozenset(
    {
        "507",
        "InsufficientStorage",
        "QuotaExceeded",
        "XMinioStorageFull",
        "XMinioAdminBucketQuotaExceeded",
    }
)
# By operation; other permissions are named for their operation.
_PERMISSIONS = {
    "CompleteMultipartUpload": "s3:PutObject",
    "CreateMultipartUpload": "s3:PutObject",
    "DeleteObjects": "s3:DeleteObject",
    "HeadBucket": "s3:ListBucket",
    "HeadObject": "s3:GetObject",
    "ListObjectsV2": "s3:ListBucket",
    "UploadPart": "s3:PutObject",
}
_PUTS = frozenset({"PutObject", "UploadPart", "CompleteMultipartUpload"})
_REFUSED = {
    "NoSuchBucket": "there is no bucket {bucket}; create it or use another",
    "InvalidAccessKeyId": "unknown access key; check AWS_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": (
        "the secret key does not match the access key; check AWS_SECRET_ACCESS_KEY"
    ),
    "ExpiredToken": "the session token has expired; get new credentials",
    "InvalidToken": "invalid session token; check AWS_SESSION_TOKEN",
    "RequestTimeTooSkewed": "the clocks of this machine and the server differ too much",
    "AccessDenied": "access denied; the credentials need the permission {permission}",
    "403": "the credentials are wrong or lack a permission",
}
_NO_CREDENTIALS = (
    "no credentials for S3; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE "
    "(vinedresser up --s3 prints those of the local server)"
)
# Botocore's errors without a response, the more specific first.
_AWAY: tuple[tuple[type[Exception], str], ...] = (
    (boto.NoCredentialsError, _NO_CREDENTIALS),
    (boto.PartialCredentialsError, _NO_CREDENTIALS),
    (boto.ProfileNotFound, "the profile in AWS_PROFILE is not in ~/.aws"),
    (boto.EndpointConnectionError, "no server answers at {endpoint}; check AWS_ENDPOINT_URL"),
    (boto.ConnectTimeoutError, "no server answers at {endpoint}; check AWS_ENDPOINT_URL"),
    (boto.SSLError, "no secure connection to {endpoint}; check AWS_ENDPOINT_URL and AWS_CA_BUNDLE"),
    (boto.HTTPClientError, "the connection to {endpoint} broke"),
)


def s3_client() -> Any:
    """Return this process's client for the current environment.

    Sockets must not be shared with a forked child, so each process has its own client.

    Raises:
        botocore.exceptions.BotoCoreError: the configuration for AWS is invalid.
        ValueError: the endpoint is not a URL.
    """
    settings = tuple(sorted(item for item in os.environ.items() if item[0].startswith("AWS_")))
    return _client(os.getpid(), os.environ.get("HOME", ""), settings)


@lru_cache(maxsize=8)
def _client(_pid: int, _home: str, _settings: tuple[tuple[str, str], ...]) -> Any:
    # The default session is not thread-safe.
    session = boto3.session.Session()
    region = session.region_name or "us-east-1"
    client = session.client("s3", region_name=region, config=_config("auto"))
    host = str(client.meta.endpoint_url).partition("://")[2].partition("/")[0].partition(":")[0]
    if host.endswith(_AMAZON):
        return client
    # Other servers rarely have a host name per bucket.
    return session.client("s3", region_name=region, config=_config("path"))


def _config(addressing: str) -> Any:
    return Config(
        connect_timeout=5,
        read_timeout=30,
        retries={"mode": "standard", "total_max_attempts": 4},
        # The threads of a flow, which follow several runs, share the client; connections beyond the
        # pool's size are closed after their request, with a warning.
        max_pool_connections=4 * CONNECTIONS,
        s3={"addressing_style": addressing},
        # Otherwise botocore signs URLs by version 2, which is refused for objects under KMS.
        signature_version="s3v4",
        # Every put carries a CRC32C, and captured data has its own checksums; those that botocore
        # adds cost a third of the speed, and some servers reject them.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )


@contextmanager
def translated(url: str, endpoint: str = "") -> Iterator[None]:
    """Raise botocore's errors as `StoreError`.

    Args:
        url: URL of the object or prefix, ``s3://bucket/…``.
        endpoint: URL of the server.
    """
    try:
        yield
    except boto.ClientError as error:
        raise _answer(url, error) from error
    except (boto.BotoCoreError, boto.HTTPClientError) as error:
        for kind, sentence in _AWAY:
            if isinstance(error, kind):
                raise StoreError(f"{url}: {sentence.format(endpoint=endpoint)}") from error
        raise StoreError(f"{url}: {error}") from error


def code_of(error: boto.ClientError) -> str:
    """Return S3's error code, or the HTTP status if the response has no body."""
    return str(error.response.get("Error", {}).get("Code", ""))


def was_retried(error: boto.ClientError) -> bool:
    """Return whether the request was sent more than once; an earlier attempt may have succeeded."""
    return bool(error.response.get("ResponseMetadata", {}).get("RetryAttempts", 0))


def _answer(url: str, error: boto.ClientError) -> StoreError:
    code = code_of(error)
    meta: dict[str, Any] = error.response.get("ResponseMetadata", {})
    if code in _MISSING:
        return KeyMissing(f"{url}: no such object")
    if code in _TAKEN:
        return KeyTaken(f"{url}: already exists")
    if code in _FULL or meta.get("HTTPStatusCode") == 507:
        return StoreFull(f"{url}: the store has no space left ({code})")
    server = str(meta.get("HTTPHeaders", {}).get("server", ""))
    if code == "InternalError" and error.operation_name in _PUTS and "SeaweedFS" in server:
        # SeaweedFS's only response when its disk or its volumes are full.
        return StoreFull(f"{url}: SeaweedFS cannot store it ({code}): no space left")
    if code in _REFUSED:
        bucket = url.removeprefix("s3://").partition("/")[0]
        operation = error.operation_name
        permission = _PERMISSIONS.get(operation, f"s3:{operation}")
        reason = _REFUSED[code].format(bucket=bucket, permission=permission)
        return StoreError(f"{url}: {reason} ({code})")
    return StoreError(f"{url}: {error}")
