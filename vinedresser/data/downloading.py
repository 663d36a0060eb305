"""Copies of prefixes on S3 in local folders, for scripts that read files."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from threading import Event

from vinedresser.data.sources.base import DataObject
from vinedresser.data.sources.cached import cache_folder
from vinedresser.errors import ConfigError, LaunchError, MissingDependency, StoreError
from vinedresser.objects.files import make_folders
from vinedresser.objects.retrying import attempts
from vinedresser.plain_logs import plain_logger

# Bytes that are requested, and made durable, at a time; so much memory has each of the threads.
_PIECE = 16 << 20
_THREADS = 8
# The ETag of an object that was uploaded at once and is not encrypted with a key of its own.
_MD5 = re.compile(r'"?([0-9a-f]{32})"?')
_COMPLETE = "complete"
_LONGEST_NAME = 255
# Seconds between two looks whether another process has ended its download.
_LOOK = 0.1

_log = plain_logger(__name__)


def download(url: str, given_up: Callable[[], bool] = lambda: False) -> Path:
    """Return a local folder with the objects below a prefix on S3, or with a single object.

    The folder is in the user's cache and belongs to this version of the objects: it is downloaded
    once, by one process, while others wait, and a download that was interrupted continues. Each
    file has the size that the list of the objects says, is read from this version of its object
    only and, if the ETag is the MD5 of the content, compared with it.

    Args:
        url: ``s3://bucket/prefix``; below it everything, in folders as the slashes of the keys say,
            or the object with this name.
        given_up: returns True to end it early; asked before each piece, and while it waits.

    Raises:
        ConfigError: there are no objects, or a key cannot be the name of a file.
        KeyMissing: the object does not exist.
        LaunchError: it was given up; the next download continues.
        MissingDependency: the extra "data" is not installed.
        SourceChanged: an object was replaced meanwhile.
        StoreError: the storage refused, a content is not that of the ETag, or the disk is full.
    """
    files = _files(url)
    listed = json.dumps([url, *((name, one.size, one.version) for name, one in files)])
    version = hashlib.sha256(listed.encode()).hexdigest()[:24]
    home = Path(cache_folder(), "channels", version)
    last = url.rstrip("/").rpartition("/")[2]
    folder = home / (last if _is_name(last) else "data")
    try:
        make_folders(folder)
        with _locked(home, url, given_up):
            missing = [found for found in files if not _is_there(folder, *found)]
            if missing or not (home / _COMPLETE).exists():
                _fetch(url, missing, folder, home, given_up)
                (home / _COMPLETE).write_text(f"{url}\n", encoding="utf-8")
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(f"{error.filename or home}: {error.strerror}") from error
    return folder


def _files(url: str) -> list[tuple[str, DataObject]]:
    """Return relative path and object of each file."""
    try:
        from vinedresser.data.sources.s3 import find_object, list_objects
    except ImportError as error:
        raise MissingDependency(
            f'{url}: S3 needs the package {error.name}: pip install "vinedresser[data]"'
        ) from error
    prefix = f"{url.rstrip('/')}/"
    # An object with a slash at its end stands for a folder.
    found = [(one.uri[len(prefix) :], one) for one in list_objects(prefix)]
    files: list[tuple[str, DataObject]] = [
        (name, one) for name, one in found if name and not name.endswith("/")
    ]
    if not files and not url.endswith("/") and url.count("/") > 2:
        files = [(url.rpartition("/")[2], find_object(url))]
    if not files:
        raise ConfigError(f"{url}: there are no objects")
    folders = {parent for name, _ in files for parent in _parents(name)}
    for name, one in files:
        if name in folders:
            raise ConfigError(f"{one.uri}: there are objects below it, too; a file is no folder")
        if not all(map(_is_name, name.split("/"))):
            raise ConfigError(f"{one.uri}: its key cannot be the path of a file below a folder")
    return files


def _parents(name: str) -> Iterator[str]:
    while (name := name.rpartition("/")[0]) != "":
        yield name


def _is_name(part: str) -> bool:
    """Return whether a part of a key can be the name of a file."""
    return part not in ("", ".", "..") and len(part.encode()) <= _LONGEST_NAME and "\0" not in part


def _is_there(folder: Path, name: str, found: DataObject) -> bool:
    try:
        return (folder / name).stat().st_size == found.size
    except OSError:
        return False


@contextmanager
def _locked(home: Path, url: str, given_up: Callable[[], bool]) -> Iterator[None]:
    """Hold the lock of a download; one that another process makes is waited for."""
    with open(home / "lock", "a", encoding="utf-8") as file:
        for attempt in attempts(repeat(_LOOK)):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if attempt == 1:
                    _log.warning("%s: waiting for another process, which downloads it", url)
                if given_up():
                    raise LaunchError(f"{url}: another process still downloads it") from None
        yield


def _fetch(
    url: str,
    missing: Sequence[tuple[str, DataObject]],
    folder: Path,
    home: Path,
    given_up: Callable[[], bool],
) -> None:
    """Download files into a folder; if one fails, the others end with their piece."""
    size = sum(found.size for _, found in missing)
    parts = home / "parts"
    make_folders(parts)
    begun = sum(one.stat().st_size for one in parts.iterdir())
    free = shutil.disk_usage(home).free
    if size - begun > free:
        raise StoreError(
            f"{url}: {size / 1e6:,.0f} MB, and {home} has room for {free / 1e6:,.0f} MB; set "
            "XDG_CACHE_HOME to a folder on a larger disk"
        )
    _log.warning("%s: downloading %d files, %.1f MB, to %s", url, len(missing), size / 1e6, folder)
    errors: list[BaseException] = []
    stopping = Event()

    def fetch(name: str, found: DataObject) -> None:
        try:
            _fetch_one(name, found, folder, parts, lambda: stopping.is_set() or given_up())
        except BaseException as error:
            errors.append(error)
            raise

    with ThreadPoolExecutor(_THREADS) as pool:
        waiting = [pool.submit(fetch, *one) for one in missing]
        try:
            wait(waiting, return_when=FIRST_EXCEPTION)
        finally:
            # After an error, or Ctrl-C, those that are running end with their next piece.
            stopping.set()
            pool.shutdown(cancel_futures=True)
    if errors:
        # Those of the others may only say that they were given up.
        raise errors[0]
    shutil.rmtree(parts)


def _fetch_one(
    name: str, found: DataObject, folder: Path, parts: Path, given_up: Callable[[], bool]
) -> None:
    """Download a file; what an interrupted download has made durable is kept."""
    part = parts / hashlib.sha256(name.encode()).hexdigest()
    with open(part, "a+b") as file:
        # The last piece may have been lost with the machine's power.
        at = max(file.tell() - 1, 0) // _PIECE * _PIECE
        file.truncate(at)
        digest = hashlib.md5(usedforsecurity=False)
        file.seek(0)
        for start in range(0, at, _PIECE):
            digest.update(file.read(min(_PIECE, at - start)))
        while at < found.size:
            if given_up():
                done = f"{at / 1e6:,.0f} of {found.size / 1e6:,.0f} MB"
                raise LaunchError(
                    f"{found.uri}: its download was broken off after {done}; the next continues"
                )
            piece = found.read(at, min(at + _PIECE, found.size))
            digest.update(piece)
            file.write(piece)
            file.flush()
            os.fsync(file.fileno())
            at += len(piece)
    _check(found, digest.hexdigest(), part)
    path = folder / name
    make_folders(path.parent)
    os.replace(part, path)
    # It is shared by all trainings with this data. Not before: a part is opened again to continue.
    path.chmod(0o444)


def _check(found: DataObject, digest: str, part: Path) -> None:
    """Refuse a content whose MD5 is not that of the ETag, if this is one."""
    from vinedresser.data.sources.s3 import has_opaque_etag

    said = _MD5.fullmatch(found.version)
    if said is None or said[1] == digest or has_opaque_etag(found.uri):
        return
    part.unlink()
    raise StoreError(
        f"{found.uri}: its content has the MD5 {digest}, and its ETag says {said[1]}: it was "
        "damaged on the way, or on the server"
    )
