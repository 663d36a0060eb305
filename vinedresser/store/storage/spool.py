"""The spool of a run on an object store: the run's directory as long as not all of it is there.

The hook, the supervisor and the writer know this directory only, which is laid out like any run's.
The relay, a process of its own (`vinedresser.infra.relay`), brings what is in it to the store and
removes the segments that are safe there; so nothing that happens to the network or to the store is
felt by the training, and what a crash left here is still brought there later.
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

from vinedresser.errors import ConfigError, StoreFull
from vinedresser.store.storage.base import Buffer
from vinedresser.store.storage.local import LocalStorage

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
# The folder in a spool that is the relay's own: nothing in it is part of the run.
PRIVATE = ".relay"

_TARGET = f"{PRIVATE}/target.json"
_LOCK = f"{PRIVATE}/lock"
_SEGMENTS = "segments/"
# How often a writer that waits for room looks for it, and after which time it says that it waits.
_LOOK = 0.05
_QUIET = 1.0


@dataclass(frozen=True)
class Target:
    """Where a spool's content belongs.

    Attributes:
        url: of the run, ``s3://bucket/prefix``.
        endpoint: ``AWS_ENDPOINT_URL`` when the spool was made, "" where there was none: whoever
            brings it there later finds the same server. Credentials are never kept.
        rank: whose spool it is, where each process of a run has its own; None: the whole run's.
        owner: process identity of the training, where nobody supervises it.
    """

    url: str
    endpoint: str
    rank: int | None = None
    owner: dict[str, Any] | None = None


def spool_root() -> Path:
    """Return the folder of all spools of this user on this machine."""
    if named := os.environ.get(SPOOL_VARIABLE):
        return Path(named).absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache, "vinedresser", "spool").absolute()


def make_spool(
    url: str, token: str, *, rank: int | None = None, owner: dict[str, Any] | None = None
) -> tuple[Path, int]:
    """Make an empty spool for a run.

    Args:
        url: of the run.
        token: makes it another one than that of any other attempt at this URL.
        rank: see `Target`.
        owner: see `Target`.

    Returns:
        Its folder, whose last part begins with the run's name, for people; and the relay's lock.

    Raises:
        OSError: the folder cannot be written.
    """
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", url.rstrip("/").rpartition("/")[2])[:60]
    folder = spool_root() / "-".join([name, token, *([] if rank is None else [str(rank)])])
    return folder, adopt_spool(folder, url, rank=rank, owner=owner)


def adopt_spool(
    folder: Path, url: str, *, rank: int | None = None, owner: dict[str, Any] | None = None
) -> int:
    """Make a directory, new or one that holds a run, the spool of a run on an object store.

    Args:
        folder: the directory.
        url: of the run.
        rank: see `Target`.
        owner: see `Target`.

    Returns:
        The relay's lock.

    Raises:
        OSError: it is a spool already, or cannot be written.
    """
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    target = Target(url, endpoint, rank, owner)
    (folder / PRIVATE).mkdir(parents=True)
    # Before it can be found: else who looks for what was left behind would upload it, too.
    lock = lock_spool(folder)
    assert lock is not None, "nobody else knows the folder"
    LocalStorage(folder).put(_TARGET, [json.dumps(asdict(target)).encode()], exclusive=True)
    return lock


def read_target(folder: Path) -> Target | None:
    """Return where the content of a folder belongs; None when it is no spool."""
    try:
        text = (folder / _TARGET).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return Target(**json.loads(text))


def spools(store: str = "") -> list[Path]:
    """Return the spools that there are, by name.

    Args:
        store: only those of runs in this store, or of this very run; "": all.
    """
    folders = sorted(path.parent.parent for path in spool_root().glob(f"*/{_TARGET}"))
    return [folder for folder in folders if not store or _belongs(folder, store.rstrip("/"))]


def _belongs(folder: Path, store: str) -> bool:
    # One that was done may have been removed in between.
    target = read_target(folder)
    return target is not None and f"{target.url}/".startswith(f"{store}/")


def lock_spool(folder: Path) -> int | None:
    """Take the relay's lock of a spool; it is held until the descriptor is closed.

    Returns:
        The descriptor; None when a relay is at work, or the spool is gone.
    """
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


class SpoolStorage(LocalStorage):
    """A spool as the writer's storage: as large as it may become, and no larger.

    Args:
        folder: the spool.

    Attributes:
        limit: bytes of segments that may wait in it: ``VINEDRESSER_SPOOL_MIB``, or else 8 GiB.
        wait: when that is reached, wait until there is room; else refuse the segment.
        patience: seconds that a segment waits at the most.
        on_wait: called with a sentence when a segment has to wait; None: nobody is told.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        super().__init__(folder)
        self.limit = _limit()
        self.wait = True
        self.patience = float("inf")
        self.on_wait: Callable[[str], object] | None = None

    def put(self, key: str, parts: Iterable[Buffer], *, exclusive: bool = False) -> None:
        """See `Storage.put`; a segment may have to wait for room."""
        if key.startswith(_SEGMENTS):
            self._await_room()
        super().put(key, parts, exclusive=exclusive)

    def _await_room(self) -> None:
        since = time.monotonic()
        said = False
        while (size := self._size()) >= self.limit:
            waited = time.monotonic() - since
            if not self.wait or waited >= self.patience:
                raise StoreFull(
                    f"{self.location}: {size >> 20} MiB wait to be uploaded, which is all that may"
                )
            if waited >= _QUIET and not said and self.on_wait is not None:
                said = True
                self.on_wait(
                    f"{self.location}: {size >> 20} MiB wait to be uploaded, which is all that "
                    "may; the training may have to wait"
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
