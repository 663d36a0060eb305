"""Locations: where a run, or a store of runs, lies; and opening the storage there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self, TypeAlias

from vinedresser.errors import ConfigError, MissingDependency
from vinedresser.objects.base import Storage
from vinedresser.objects.local import LocalStorage

__all__ = ["Location", "StoreUrl", "is_remote", "open_storage", "parse_location"]

_S3 = "s3://"


class StoreUrl(str):
    """The URL of a run, or of a store of runs, on an object store.

    It joins and splits like a `pathlib.Path`, so code that handles a `Location` rarely needs to
    know which of the two it has. Elsewhere it is a plain string.

    Args:
        url: ``s3://bucket/prefix``; trailing slashes are removed.
    """

    __slots__ = ()

    def __new__(cls, url: str) -> Self:  # noqa: D102 (see the class)
        scheme, separator, path = url.partition("://")
        return super().__new__(cls, f"{scheme}{separator}{path.rstrip('/')}")

    def __truediv__(self, name: str) -> StoreUrl:
        return StoreUrl(f"{self}/{name}")

    @property
    def name(self) -> str:
        """The last component."""
        return self.rpartition("/")[2]

    @property
    def parent(self) -> StoreUrl:
        """The URL without its last component."""
        return StoreUrl(self.rpartition("/")[0])


# A directory, or a URL. To treat the two differently, use `isinstance(location, Path)`.
Location: TypeAlias = Path | StoreUrl


def parse_location(text: str | os.PathLike[str]) -> Location:
    """Return the location that a user wrote: a directory, or the URL of an object store.

    Args:
        text: a local path, absolute or relative to the working directory, or ``s3://bucket/prefix``.
    """
    return StoreUrl(os.fspath(text)) if is_remote(text) else Path(text)


def is_remote(location: str | os.PathLike[str]) -> bool:
    """Return whether a location is on an object store, not in a directory."""
    return os.fspath(location).startswith(_S3)


def open_storage(location: str | os.PathLike[str], *, anchor: str = "") -> Storage:
    """Return the storage at a location.

    Args:
        location: a local path, in which ``~`` is expanded, or ``s3://bucket/prefix``. Endpoint,
            region and credentials for S3 are read like in AWS's own tools: from the environment
            (``AWS_ENDPOINT_URL``, ``AWS_ACCESS_KEY_ID``, …) or from ``~/.aws``.
        anchor: see `LocalStorage`; without effect on S3, which has no directories.

    Raises:
        ConfigError: the URL has an unsupported scheme or no bucket.
        MissingDependency: the location is on S3, and the extra "s3" is not installed.
        StoreError: the location is on S3, and the configuration for S3 is invalid.
    """
    text = os.fspath(location)
    if is_remote(text):
        try:
            from vinedresser.objects.s3 import S3Storage
        except ImportError as error:
            raise MissingDependency(
                f'{text}: S3 needs the package {error.name}: pip install "vinedresser[s3]"'
            ) from error
        return S3Storage(text)
    if text.startswith("s3:/"):
        raise ConfigError(f"{text}: a path object drops a slash of a URL; pass a string, s3://…")
    scheme, separator, _ = text.partition("://")
    if not separator:
        return LocalStorage(os.path.expanduser(text), anchor=anchor)
    if scheme == "file":
        return LocalStorage(text.removeprefix("file://"), anchor=anchor)
    raise ConfigError(
        f"{text}: {scheme}:// is not supported; use a local directory or s3://bucket/…"
    )
