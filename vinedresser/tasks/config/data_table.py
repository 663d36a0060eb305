"""``[data]``: the sources of the training data by channel, and the size of their cache."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from vinedresser.errors import ConfigError, did_you_mean
from vinedresser.objects import is_remote
from vinedresser.quantities import parse_size

__all__ = ["checked_cache", "checked_channels", "refuse_missing_files"]

# As on SageMaker.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_CACHE = "cache"
_MAGIC = "*?["


def checked_channels(table: object, base: Path, where: str) -> dict[str, list[str]]:
    """Return the sources of each channel; paths are absolute.

    Args:
        table: the table: for each channel a source, or a list of several; and ``cache``.
        base: folder to which paths are relative.
        where: beginning of messages.

    Raises:
        ConfigError: a name or a source is invalid.
    """
    if not isinstance(table, Mapping):
        raise ConfigError(f'{where}: must be a table such as train = "s3://bucket/train/"')
    channels = {}
    for name, given in table.items():
        if name == _CACHE:
            continue
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"{where}.{name}: the name of a channel has letters, digits, '-', '_' and '.'"
            )
        sources = [given] if isinstance(given, str) else given
        if not (isinstance(sources, list) and sources) or not all(
            isinstance(source, str) and source for source in sources
        ):
            raise ConfigError(
                f"{where}.{name}: must be a path or URL, or a list of several, not {given!r}"
                f"{did_you_mean(name, [_CACHE])}"
            )
        if any(map(_is_size, sources)):
            raise ConfigError(
                f"{where}.{name}: {given!r} is a size, and a channel is a path or URL"
                f"{did_you_mean(name, [_CACHE]) or f'; the size of the cache is {_CACHE}'}"
            )
        channels[name] = [
            source if is_remote(source) else _absolute(source, base) for source in sources
        ]
    return channels


def _is_size(text: str) -> bool:
    try:
        return parse_size(text) > 0
    except ValueError:
        return False


def checked_cache(table: Mapping[str, object], where: str) -> str:
    """Return the maximum size of the cache, such as "20 GB"; "" if there is none.

    Args:
        table: see `checked_channels`, which has accepted it.
        where: beginning of messages.

    Raises:
        ConfigError: it is no size.
    """
    given = table.get(_CACHE)
    if given is None:
        return ""
    try:
        parse_size(given)
    except ValueError as error:
        raise ConfigError(f"{where}.{_CACHE}: {error}") from error
    return str(given)


def refuse_missing_files(channels: Mapping[str, list[str]], where: str) -> None:
    """Refuse a channel with a path at which there is nothing on this machine.

    Raises:
        ConfigError: there is one.
    """
    for name, sources in channels.items():
        for source in sources:
            pattern = any(sign in source for sign in _MAGIC)
            if not (is_remote(source) or pattern or os.path.exists(source)):
                raise ConfigError(f"{where}.{name}: {source}: no such file or directory")


def _absolute(path: str, base: Path) -> str:
    """Return a path as an absolute one; a slash at its end stays."""
    return os.path.join(base, os.path.expanduser(path))
