"""From what a user writes to a storage."""

from __future__ import annotations

import os

from vinedresser.errors import ConfigError, MissingDependency
from vinedresser.store.storage.base import Storage
from vinedresser.store.storage.local import LocalStorage

__all__ = ["is_remote", "open_storage"]

_S3 = "s3://"


def is_remote(location: str | os.PathLike[str]) -> bool:
    """Say whether a location is on an object store, and not a directory."""
    return os.fspath(location).startswith(_S3)


def open_storage(location: str | os.PathLike[str]) -> Storage:
    """Return the storage for a directory path or an S3 URL.

    Args:
        location: a local path, in which ``~`` is expanded, or ``s3://bucket/prefix``. Endpoint,
            region and credentials of S3 come from where AWS's own tools take them: the environment
            (``AWS_ENDPOINT_URL``, ``AWS_ACCESS_KEY_ID``, …) or ``~/.aws``.

    Raises:
        ConfigError: the location is a URL of a kind that is not supported, or names no bucket.
        MissingDependency: it is on S3, and a package of the extra "s3" is not installed.
        StoreError: it is on S3, and what is configured for S3 cannot be used.
    """
    text = os.fspath(location)
    if is_remote(text):
        try:
            from vinedresser.store.storage.s3 import S3Storage
        except ImportError as error:
            raise MissingDependency(
                f'{text}: S3 needs the package {error.name}: pip install "vinedresser[s3]"'
            ) from error
        return S3Storage(text)
    if text.startswith("s3:/"):
        raise ConfigError(f"{text}: a path object loses a slash of a URL; give it as text, s3://…")
    scheme, separator, _ = text.partition("://")
    if not separator:
        return LocalStorage(os.path.expanduser(text))
    if scheme == "file":
        return LocalStorage(text.removeprefix("file://"))
    raise ConfigError(
        f"{text}: {scheme}:// is not a supported store; give a local directory or s3://bucket/…"
    )
