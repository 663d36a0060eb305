"""The sockets that SeaweedFS creates, most of them in /tmp, and leaves when it is killed.

Its components communicate through them. Their paths are fixed except for the port number.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

__all__ = ["noted_sockets", "own_sockets", "remove_sockets"]

_PLACE = "/tmp/seaweedfs-{part}-grpc-{port}.sock"  # noqa: S108
_NOTE = "sockets.txt"


def own_sockets(folder: Path) -> dict[str, Path]:
    """Return the sockets of the components that can be told where to create them, by component."""
    return {part: folder / f"{part}.sock" for part in ("filer", "s3")}


@contextmanager
def noted_sockets(folder: Path, ports: Mapping[str, int]) -> Iterator[None]:
    """Note the sockets of a server that is started within the block, so they can be removed later.

    Args:
        folder: folder of the server's files; sockets of an earlier server are removed.
        ports: gRPC port of each component.
    """
    remove_sockets(folder)
    places = [_PLACE.format(part=part, port=port) for part, port in ports.items()]
    places += map(str, own_sockets(folder).values())
    (folder / _NOTE).write_text("\n".join(places), encoding="utf-8")
    try:
        yield
    except BaseException:
        remove_sockets(folder)
        raise


def remove_sockets(folder: Path) -> None:
    """Remove the sockets of a server that has ended, unless another process listens on them.

    Args:
        folder: folder of the server's files.
    """
    note = folder / _NOTE
    if not note.is_file():
        return
    for place in note.read_text(encoding="utf-8").splitlines():
        if _is_unused(place):
            Path(place).unlink(missing_ok=True)


def _is_unused(place: str) -> bool:
    """Return whether a socket is left over; False if it is missing or another user's."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(place)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
