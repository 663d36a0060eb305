"""From what a user writes to a storage."""

from __future__ import annotations

import os

from vinedresser.errors import ConfigError
from vinedresser.infra.storage.base import Storage
from vinedresser.infra.storage.local import LocalStorage

__all__ = ["open_storage"]


def open_storage(location: str | os.PathLike[str]) -> Storage:
    """Return the storage for a directory path.

    Args:
        location: a local path; ``~`` is expanded.

    Raises:
        ConfigError: the location is a URL of a kind that is not supported.
    """
    text = os.fspath(location)
    scheme, separator, _ = text.partition("://")
    if not separator:
        return LocalStorage(os.path.expanduser(text))
    if scheme == "file":
        return LocalStorage(text.removeprefix("file://"))
    raise ConfigError(f"{text}: {scheme}:// is not a supported store; give a local directory")
