"""Who may use a page that several people open: their tokens, as hashes, and their rights."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from vinedresser.errors import ConfigError
from vinedresser.infra.configuration import build, parse_toml
from vinedresser.plain_logs import plain_logger

__all__ = ["People", "Person", "Rights", "person_of", "private_file", "read_people"]

_log = plain_logger(__name__)

Rights = Literal["read", "control"]

_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
# A token is compared by its hash alone, which protects only what nobody guesses.
_LEAST = 32
# Seconds in which a file may change twice without another time, by the clock of its disk.
_TICK = 2.0


class Person(NamedTuple):
    """Somebody who may use the pages.

    Attributes:
        name: name in the records of what they have changed.
        rights: "read" for pages, queries and metrics; "control" also changes trainings.
        digest: SHA-256 of the token, in hexadecimal digits; "" for the owner, who has a cookie.
    """

    name: str
    rights: Rights
    digest: str = ""


@dataclass(frozen=True)
class _Entry:
    """A table of the file of tokens."""

    rights: Rights
    sha256: str

    def __post_init__(self) -> None:
        # The value is not shown: it may be the token itself.
        if not _DIGEST.fullmatch(self.sha256):
            raise ValueError(
                "sha256: must be the SHA-256 of the token, 64 hexadecimal digits, as from "
                "`printf %s TOKEN | sha256sum`"
            )


class People:
    """The people of a file of tokens, which is read again when it changes.

    While it is wrong, nobody is let in; that is logged once.

    Args:
        path: see `read_people`.

    Raises:
        ConfigError: see `read_people`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = self._state()
        self._people = read_people(path)
        self._fault = ""

    def now(self) -> Sequence[Person]:
        """Return the people as the file has them at this moment; () if it is wrong."""
        state = self._state()
        if state is None or state != self._seen:
            self._read()
            self._seen = state
        return () if self._fault else self._people

    def _read(self) -> None:
        before, fault = self._people, self._fault
        try:
            self._people, self._fault = read_people(self._path), ""
        except ConfigError as error:
            self._fault = str(error)
            if self._fault != fault:
                _log.warning("%s; nobody is let in until it is right", self._fault)
            return
        if fault or self._people != before:
            named = ", ".join(f"{one.name} ({one.rights})" for one in self._people)
            _log.info("%s: read again: %s", self._path, named)

    def _state(self) -> tuple[float, ...] | None:
        """Return by what a change of the file shows; None if it may change without."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        if abs(time.time() - found.st_ctime) < _TICK:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def read_people(path: Path) -> list[Person]:
    """Return the people of a file of tokens.

    Args:
        path: a TOML file with a table per person: ``rights`` and ``sha256`` of the token.

    Raises:
        ConfigError: others can open the file, it has no table or a wrong one, or two people have
            the same token.
    """
    people: list[Person] = []
    for name, table in parse_toml(_private_content(path, "--tokens"), path).items():
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"{path}: {name!r}: a name has up to 64 letters, digits, '.', '_', '@' or '-'"
            )
        if not isinstance(table, Mapping):
            # The value is not shown, as above.
            raise ConfigError(f"{path}: {name}: must be a table with rights and sha256")
        entry = build(_Entry, table, f"{path}: {name}")
        twin = next((one.name for one in people if one.digest == entry.sha256), None)
        if twin is not None:
            raise ConfigError(f"{path}: {twin} and {name} have the same token; make one for each")
        people.append(Person(name, entry.rights, entry.sha256))
    if not people:
        raise ConfigError(
            f'{path}: names nobody; write [NAME], rights = "read" or "control", and sha256 of a '
            "token"
        )
    return people


def person_of(people: Sequence[Person], token: str, name: str | None) -> Person | None:
    """Return whose token this is; None if it is nobody's.

    Args:
        token: the token of a request.
        name: the name that the request gives with it; None: it gives none.
    """
    if len(token) < _LEAST:
        return None
    digest = hashlib.sha256(token.encode(errors="replace")).hexdigest()
    # All are compared, so that the time tells nothing of the order.
    found = [one for one in people if hmac.compare_digest(one.digest, digest)]
    return next((one for one in found if name in (None, one.name)), None)


def private_file(path: Path, option: str) -> None:
    """Check that only this user can open a file.

    Args:
        option: the option that names it, for the message.

    Raises:
        ConfigError: the file is missing or none, or belongs to or is open to others.
    """
    try:
        _check_private(path.stat(), path, option)
    except OSError as error:
        raise ConfigError(f"{option} {path}: {os.strerror(error.errno or 0)}") from error


def _private_content(path: Path, option: str) -> bytes:
    """Return the content of a file of which `private_file` holds, checked as it is read.

    Raises:
        ConfigError: see `private_file`.
    """
    try:
        # A FIFO would block.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            _check_private(os.fstat(descriptor), path, option)
            with open(descriptor, "rb", closefd=False) as file:
                return file.read()
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ConfigError(f"{option} {path}: {os.strerror(error.errno or 0)}") from error


def _check_private(found: os.stat_result, path: Path, option: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ConfigError(f"{option} {path}: not a file")
    if found.st_uid not in (os.getuid(), 0):
        raise ConfigError(f"{option} {path}: belongs to another user; make a file of your own")
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(f"{option} {path}: others can open it; close it: chmod 600 {path}")
