"""The S3 client: one per process, with bounded timeouts and retries."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import boto3
from botocore.config import Config

__all__ = ["CONNECTIONS", "s3_client"]

# Concurrent requests per client: S3 delivers about 40 MB/s and 30 requests a second per connection,
# and 16 connections were ten times as fast as one.
CONNECTIONS = 16

_AMAZON = (".amazonaws.com", ".amazonaws.com.cn")


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
        # Every put carries a CRC32C, and captured data has its own checksums; those that botocore
        # adds cost a third of the speed, and some servers reject them.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
