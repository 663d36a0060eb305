"""What connects processes of a job without a process group: sockets and shared memory (Linux)."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple

from vinedresser.processes import ProcessIdentity, descendants, is_alive

# Of files in /proc, if the process has ended.
_GONE = (FileNotFoundError, ProcessLookupError)
# States of /proc/net/tcp and /proc/net/unix.
_ESTABLISHED, _CONNECTED = "01", "03"

_Address = tuple[IPv4Address | IPv6Address, int]


class _Means(NamedTuple):
    """Local and remote addresses of TCP, whether a Unix socket was accepted, shared files."""

    tcp: set[tuple[_Address, _Address]]
    unix: bool
    shared: set[str]


def connected(peers: Iterable[ProcessIdentity]) -> bool:
    """Return whether this process may exchange data with one of its peers.

    Its descendants count as part of it. Two that are connected to the same server may exchange data
    through it. Of a Unix socket the other end is not known, so any that a process has accepted
    counts, as does any connection to another machine if a peer is on one, and whatever this process
    is not allowed to see.

    Args:
        peers: the other processes.
    """
    others = list(peers)
    try:
        own = _means(os.getpid(), sparing={peer.pid for peer in others})
        return any(_may_exchange(own, peer) for peer in others)
    except PermissionError:
        return True


def _may_exchange(own: _Means, peer: ProcessIdentity) -> bool:
    """Return whether this process may exchange data with a peer."""
    alive = is_alive(peer)
    if alive is None:
        return any(not remote[0].is_loopback for _, remote in own.tcp)
    if not alive:
        return False
    other = _means(peer.pid)
    same = {remote for _, remote in own.tcp} & {remote for _, remote in other.tcp}
    direct = own.tcp & {(remote, local) for local, remote in other.tcp}
    return bool(same or direct or own.unix or other.unix or own.shared & other.shared)


def _means(root: int, *, sparing: Collection[int] = ()) -> _Means:
    """Return the connections and the shared memory of a process and its descendants.

    Args:
        root: the process; the others are taken to be in the same network.
        sparing: descendants that do not count as part of it.

    Raises:
        PermissionError: one of them cannot be looked at.
    """
    pids = {root, *descendants(root)} - {*sparing}
    inodes = {inode for pid in pids for inode in _sockets(pid)}
    tcp = set()
    for name in ("tcp", "tcp6"):
        for fields in _table(root, name):
            if fields[3] == _ESTABLISHED and fields[9] in inodes:
                tcp.add((_address(fields[1]), _address(fields[2])))
    # Only a socket that was accepted, or that listens, has a path.
    unix = any(
        fields[5] == _CONNECTED and fields[6] in inodes and len(fields) > 7
        for fields in _table(root, "unix")
    )
    return _Means(tcp, unix, {path for pid in pids for path in _shared_files(pid)})


def _sockets(pid: int) -> Iterator[str]:
    """Yield the inodes of a process's open sockets."""
    folder = f"/proc/{pid}/fd"
    with suppress(*_GONE):
        for descriptor in os.listdir(folder):
            with suppress(*_GONE):
                target = os.readlink(f"{folder}/{descriptor}")
                if target.startswith("socket:["):
                    yield target[len("socket:[") : -1]


def _table(pid: int, name: str) -> list[list[str]]:
    """Return the rows of a table of sockets, in the network of a process."""
    with suppress(*_GONE):
        text = Path(f"/proc/{pid}/net/{name}").read_text(encoding="utf-8", errors="replace")
        return [line.split() for line in text.splitlines()[1:]]
    return []


def _address(text: str) -> _Address:
    """Return the address and port of such as ``0100007F:1F90``."""
    digits, _, port = text.partition(":")
    words = bytes.fromhex(digits)
    # Words of 32 bits in the order of the machine, as which only little-endian ones are known.
    packed = b"".join(words[start : start + 4][::-1] for start in range(0, len(words), 4))
    address = ip_address(packed)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address, int(port, 16)


def _shared_files(pid: int) -> Iterator[str]:
    """Yield the files in memory that a process shares with others."""
    with suppress(*_GONE):
        for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
            _, permissions, _, _, _, *path = line.split(maxsplit=5)
            if path and "s" in permissions and path[0].startswith("/dev/shm/"):  # noqa: S108 (no file is made)
                yield path[0]
