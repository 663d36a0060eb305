"""The connection to S3: one client per process, with bounded patience."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import boto3
from botocore.config import Config

__all__ = ["CONNECTIONS", "s3_client"]

# Requests that one client has under way at the same time: S3 gives about 40 MB/s and 30 requests a
# second on each connection, and 16 were ten times as fast as one.
CONNECTIONS = 16

_AMAZON = (".amazonaws.com", ".amazonaws.com.cn")


def s3_client() -> Any:
    """Return this process's client for what the environment says now.

    Sockets must not be shared with a forked child, so each process has a client of its own.

    Raises:
        botocore.exceptions.BotoCoreError: what is configured for AWS cannot be used.
        ValueError: the endpoint is no URL.
    """
    settings = tuple(sorted(item for item in os.environ.items() if item[0].startswith("AWS_")))
    return _client(os.getpid(), os.environ.get("HOME", ""), settings)


@lru_cache(maxsize=8)
def _client(_pid: int, _home: str, _settings: tuple[tuple[str, str], ...]) -> Any:
    # The default session is shared by threads that would get into each other's way.
    session = boto3.session.Session()
    region = session.region_name or "us-east-1"
    client = session.client("s3", region_name=region, config=_config("auto"))
    host = str(client.meta.endpoint_url).partition("://")[2].partition("/")[0].partition(":")[0]
    if host.endswith(_AMAZON):
        return client
    # A server of one's own seldom has a host name for each bucket.
    return session.client("s3", region_name=region, config=_config("path"))


def _config(addressing: str) -> Any:
    return Config(
        connect_timeout=5,
        read_timeout=30,
        retries={"mode": "standard", "total_max_attempts": 4},
        # A flow's threads, which follow several runs at once, share the client; a connection that
        # is one too many is closed after its request, with a warning.
        max_pool_connections=4 * CONNECTIONS,
        s3={"addressing_style": addressing},
        # What is put carries a CRC32C of ours, and all that is captured has checksums of its own;
        # those that botocore adds cost a third of the speed, and some servers refuse them.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
