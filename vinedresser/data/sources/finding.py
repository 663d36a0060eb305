"""Finding the objects that a user names: paths, URLs, folders, prefixes, globs and manifests."""

from __future__ import annotations

import glob
import json
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from vinedresser.data.sources.augmented import described, is_augmented
from vinedresser.data.sources.base import DataObject
from vinedresser.data.sources.cached import cached
from vinedresser.errors import (
    ConfigError,
    KeyMissing,
    MissingDependency,
    NotAFile,
    SourceChanged,
    StoreError,
)
from vinedresser.objects import is_remote

_MAGIC = "*?["
_MANIFEST = ".manifest"


def find_objects(
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> list[DataObject]:
    """Return the objects that sources name: in the order of the sources, sorted in each.

    Args:
        sources: one or several of these, local or on S3:

            - a file or an object;
            - a folder, or a prefix that ends in a slash: everything below it, but for empty
              objects and names that begin with a dot or an underscore;
            - a glob, in which ``*``, ``?`` and ``[…]`` do not match a slash;
            - a SageMaker manifest, whose name ends in ``.manifest``, or an augmented one.

    Raises:
        ConfigError: a source names nothing, or a manifest is invalid.
        KeyMissing: an object does not exist.
        MissingDependency: a source is on S3, and the extra "data" is not installed.
        StoreError: the storage refused.
    """
    named = sources if isinstance(sources, Iterable) and not isinstance(sources, str) else [sources]
    found: list[DataObject] = []
    for one in named:
        source = os.fspath(one) if isinstance(one, str | os.PathLike) else one
        if not isinstance(source, str) or "\0" in source:
            raise ConfigError(
                f"{source!r}: not a source; name a file, a folder, a prefix or a glob"
            )
        before = len(found)
        found.extend(_found_in(source))
        if len(found) == before:
            raise ConfigError(f"{source}: there are no objects")
    if not found:
        raise ConfigError("no sources are given; name a file, a folder, a prefix or a glob")
    return cached(found)


def _found_in(source: str) -> Iterator[DataObject]:
    if source.endswith(_MANIFEST):
        yield from _manifested(source)
    elif is_remote(source):
        yield from _on_s3(source)
    elif "://" in source:
        raise ConfigError(f"{source}: not supported; use a local path or s3://bucket/…")
    else:
        yield from _local(os.path.expanduser(source))


def _on_s3(source: str) -> Iterator[DataObject]:
    try:
        from vinedresser.data.sources.s3 import find_object, list_objects
    except ImportError as error:
        raise MissingDependency(
            f'{source}: S3 needs the package {error.name}: pip install "vinedresser[data]"'
        ) from error
    first = min((source.find(sign) for sign in _MAGIC if sign in source), default=-1)
    if first >= 0:
        # As on a disk, signs of a glob may be those of a name.
        found = [
            one
            for one in list_objects(source[:first])
            if one.uri == source or _matches(one.uri, source)
        ]
        yield from [one for one in found if one.uri == source] or found
    elif source.endswith("/") or source.count("/") < 3:
        folder = source if source.endswith("/") else f"{source}/"
        yield from (one for one in list_objects(folder) if one.size and _is_data(one.uri, folder))
    else:
        yield find_object(source)


def _local(path: str) -> Iterator[DataObject]:
    if os.path.isdir(path):
        names = [os.path.join(folder, name) for folder, _, files in os.walk(path) for name in files]
        found = (_find_file(name) for name in sorted(names) if _is_data(name, path))
        yield from (one for one in found if one.size)
    elif any(sign in path for sign in _MAGIC) and not os.path.exists(path):
        yield from (_find_file(name) for name in sorted(glob.glob(path)) if os.path.isfile(name))
    else:
        yield _find_file(path)


def _is_data(name: str, folder: str) -> bool:
    return not any(part.startswith((".", "_")) for part in name[len(folder) :].split("/"))


def _matches(url: str, pattern: str) -> bool:
    parts, patterns = url.split("/"), pattern.split("/")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


def _manifested(source: str) -> Iterator[DataObject]:
    """Yield what a manifest names: ``[{"prefix": "s3://bucket/folder/"}, "a", "b", …]``.

    Or what an augmented one describes, see `DescribedObject`.

    https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_S3DataSource.html
    """
    (manifest,) = _on_s3_or_local(source)
    content = manifest.read(0, manifest.size)
    if is_augmented(content):
        yield from described(content, source, _single)
        return
    try:
        entries = json.loads(content)
    except ValueError as error:
        raise ConfigError(f"{source}: not valid JSON: {error}") from error
    if (
        not isinstance(entries, list)
        or len(entries) < 2
        or not isinstance(entries[0], dict)
        or not isinstance(entries[0].get("prefix"), str)
        or not all(isinstance(entry, str) for entry in entries[1:])
    ):
        raise ConfigError(
            f'{source}: not a manifest; one looks like [{{"prefix": "s3://bucket/folder/"}}, "a"]'
        )
    for entry in entries[1:]:
        try:
            yield from _on_s3_or_local(entries[0]["prefix"] + entry)
        except KeyMissing as error:
            raise KeyMissing(f"{source}: {error}") from error


def _single(source: str) -> DataObject:
    found = [*_on_s3_or_local(source)]
    if len(found) != 1:
        raise KeyMissing(f"{source}: must be a single file")
    return found[0]


def _on_s3_or_local(source: str) -> Iterator[DataObject]:
    return _on_s3(source) if is_remote(source) else _local(source)


@dataclass(frozen=True)
class _LocalObject:
    """See `DataObject`; opened anew for each read, so that it can be sent to other processes."""

    uri: str
    size: int
    version: str

    def read(self, start: int, stop: int) -> bytes:
        """See `DataObject.read`."""
        try:
            descriptor = os.open(self.uri, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise _translated(self.uri, error) from error
        try:
            if _version(os.fstat(descriptor)) != self.version:
                raise SourceChanged(f"{self.uri}: the file was changed while it was in use")
            content = _read_all(descriptor, start, stop)
        except StoreError:
            raise
        except OSError as error:
            raise _translated(self.uri, error) from error
        finally:
            os.close(descriptor)
        if len(content) < stop - start:
            raise SourceChanged(f"{self.uri}: the file was cut off while it was in use")
        return content


def _find_file(path: str) -> _LocalObject:
    """Return a file.

    Raises:
        KeyMissing: there is none.
        StoreError: it cannot be examined.
    """
    try:
        found = os.stat(path)
    except OSError as error:
        raise _translated(path, error) from error
    if not stat.S_ISREG(found.st_mode):
        raise NotAFile(f"{path}: not a file")
    return _LocalObject(path, found.st_size, _version(found))


def _version(found: os.stat_result) -> str:
    return f"{found.st_size}-{found.st_mtime_ns}-{found.st_ino}"


def _read_all(descriptor: int, start: int, stop: int) -> bytes:
    """Read a range, less if the file ends earlier; a single pread returns at most 2 GiB."""
    parts = []
    while part := os.pread(descriptor, stop - start, start):
        parts.append(part)
        start += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _translated(path: str, error: OSError) -> StoreError:
    if isinstance(error, FileNotFoundError):
        return KeyMissing(f"{path}: no such file")
    return StoreError(f"{path}: {error.strerror or error}")
