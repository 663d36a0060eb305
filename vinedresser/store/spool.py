"""The spool of a run on an object store: a local run directory until the upload is complete.

The hook, the supervisor and the writer only use this directory, whose layout is that of any run.
The relay, a separate process (`vinedresser.infra.supervise.relay`), uploads its contents and
removes uploaded segments. Failures of the network or the store thus do not affect the training, and
data left by a crash is uploaded later.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vinedresser.errors import ConfigError, CorruptData, KeyMissing, StoreFull
from vinedresser.objects.base import Buffer
from vinedresser.objects.files import folder_mode, make_folders, open_file
from vinedresser.objects.local import LocalStorage
from vinedresser.plain_logs import plain_logger
from vinedresser.store.json_values import DAMAGE, parse_json

__all__ = [
    "PRIVATE",
    "SPOOL_VARIABLE",
    "SpoolStorage",
    "Target",
    "adopt_spool",
    "lock_spool",
    "make_spool",
    "read_target",
    "spool_root",
    "spools",
]

SPOOL_VARIABLE = "VINEDRESSER_SPOOL"
_LIMIT_VARIABLE = "VINEDRESSER_SPOOL_MIB"
_LIMIT_MIB = 8192
# The relay's own folder in a spool, which is not part of the run.
PRIVATE = ".relay"

_log = plain_logger(__name__)

_TARGET = f"{PRIVATE}/target.json"
_LOCK = f"{PRIVATE}/lock"
_SEGMENTS = "segments/"
# Seconds between checks for space of a waiting writer, and before it reports that it waits.
_LOOK = 0.05
_QUIET = 1.0


@dataclass(frozen=True)
class Target:
    """The destination of a spool.

    Attributes:
        url: URL of the run, ``s3://bucket/prefix``.
        endpoint: ``AWS_ENDPOINT_URL`` when the spool was created, else "", so that a later upload
            finds the same server. Credentials are never stored.
        rank: rank of the spool if each process of a run has its own; None: the whole run.
        owner: process identity of an unsupervised training, as JSON.
    """

    url: str
    endpoint: str
    rank: int | None = None
    owner: dict[str, Any] | None = None


def spool_root() -> Path:
    """Return the folder with all spools of this user on this machine."""
    if named := os.environ.get(SPOOL_VARIABLE):
        return Path(named).absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache, "vinedresser", "spool").absolute()


def make_spool(
    url: str, token: str, *, rank: int | None = None, owner: dict[str, Any] | None = None
) -> tuple[Path, int]:
    """Create an empty spool for a run.

    Args:
        url: URL of the run.
        token: distinguishes it from other spools for this URL.
        rank: see `Target`.
        owner: see `Target`.

    Returns:
        Its folder, whose name begins with the run's name, and the descriptor of the relay's lock.

    Raises:
        OSError: the folder cannot be written.
    """
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", url.rstrip("/").rpartition("/")[2])[:60]
    folder = spool_root() / "-".join([name, token, *([] if rank is None else [str(rank)])])
    return folder, adopt_spool(folder, url, rank=rank, owner=owner)


def adopt_spool(
    folder: Path, url: str, *, rank: int | None = None, owner: dict[str, Any] | None = None
) -> int:
    """Turn a directory, new or with a run, into the spool of a run on an object store.

    Args:
        rank: see `Target`.
        owner: see `Target`.

    Returns:
        The descriptor of the relay's lock.

    Raises:
        OSError: the directory is already a spool or cannot be written.
    """
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    target = Target(url, endpoint, rank, owner)
    make_folders(folder)
    (folder / PRIVATE).mkdir(folder_mode())
    # Locked before it can be found: otherwise a recovery would upload it, too.
    lock = lock_spool(folder)
    assert lock is not None, "no other process knows the folder"
    LocalStorage(folder).put(_TARGET, [json.dumps(asdict(target)).encode()], exclusive=True)
    return lock


def read_target(folder: Path) -> Target | None:
    """Return the destination of a spool; None if a folder is not a spool.

    Raises:
        CorruptData: its target is damaged.
        StoreError: it cannot be read.
    """
    try:
        text = LocalStorage(folder).get(_TARGET)
    except KeyMissing:
        return None
    try:
        return Target(**parse_json(text))
    except DAMAGE as error:
        raise CorruptData(f"{folder}/{_TARGET}: not the target of a spool: {error}") from error


def spools(store: str = "") -> list[Path]:
    """Return all spools of this user, sorted by name; a damaged one is logged and left out.

    Args:
        store: only spools for this store or run; "": all.
    """
    folders = sorted(path.parent.parent for path in spool_root().glob(f"*/{_TARGET}"))
    return [folder for folder in folders if _belongs(folder, store.rstrip("/"))]


def _belongs(folder: Path, store: str) -> bool:
    try:
        target = read_target(folder)
    except CorruptData as error:
        _log.warning("%s", error)
        return False
    # It may have been removed in between.
    return target is not None and (not store or f"{target.url}/".startswith(f"{store}/"))


def lock_spool(folder: Path) -> int | None:
    """Take the relay's lock of a spool, which is held until the descriptor is closed.

    Returns:
        The descriptor; None if a relay holds the lock or the spool is gone.

    Raises:
        NotAFile: the lock is not a file.
    """
    try:
        descriptor = open_file(folder, _LOCK, os.O_RDWR | os.O_CREAT)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


class SpoolStorage(LocalStorage):
    """A spool as the writer's storage, with a limited size.

    Args:
        anchor: see `LocalStorage`.

    Attributes:
        limit: maximum bytes of waiting segments: ``VINEDRESSER_SPOOL_MIB`` (default: 8 GiB).
        wait: at the limit, wait for space; otherwise refuse the segment.
        patience: maximum seconds that a segment waits.
        on_wait: called with a sentence when a segment has to wait, or None.

    Raises:
        ConfigError: ``VINEDRESSER_SPOOL_MIB`` is not a whole number.
    """

    def __init__(self, folder: str | os.PathLike[str], *, anchor: str = "") -> None:
        super().__init__(folder, anchor=anchor)
        self.limit = _limit()
        self.wait = True
        self.patience = float("inf")
        self.on_wait: Callable[[str], object] | None = None

    def put(self, key: str, parts: Iterable[Buffer], *, exclusive: bool = False) -> None:
        """See `Storage.put`; a segment may have to wait for space."""
        if key.startswith(_SEGMENTS):
            self._await_room()
        super().put(key, parts, exclusive=exclusive)

    def _await_room(self) -> None:
        since = time.monotonic()
        reported = False
        while (size := self._size()) >= self.limit:
            waited = time.monotonic() - since
            if not self.wait or waited >= self.patience:
                raise StoreFull(
                    f"{self.location}: the spool is full: {size >> 20} MiB wait to be uploaded"
                )
            if waited >= _QUIET and not reported and self.on_wait is not None:
                reported = True
                self.on_wait(
                    f"{self.location}: the spool is full: {size >> 20} MiB wait to be uploaded; "
                    "the training may have to wait"
                )
            time.sleep(_LOOK)

    def _size(self) -> int:
        size = 0
        for folder, _, names in os.walk(Path(self.location, _SEGMENTS)):
            for name in names:
                # The relay may have removed it in between.
                with suppress(FileNotFoundError):
                    size += os.stat(os.path.join(folder, name)).st_size
        return size


def _limit() -> int:
    text = os.environ.get(_LIMIT_VARIABLE) or str(_LIMIT_MIB)
    if not text.isdecimal():
        raise ConfigError(f"{_LIMIT_VARIABLE}={text}: must be a whole number of MiB")
    return int(text) << 20
