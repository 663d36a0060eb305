"""The sockets that SeaweedFS makes in /tmp, and leaves there when it is killed.

Its parts speak with each other through them. Their place is fixed in the program, but for the port
that each name ends in.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

__all__ = ["noted_sockets", "remove_sockets"]

_PLACE = "/tmp/seaweedfs-{part}-grpc-{port}.sock"  # noqa: S108
_NOTE = "sockets.txt"


@contextmanager
def noted_sockets(folder: Path, ports: Mapping[str, int]) -> Iterator[None]:
    """Start a server within the block; what it leaves in /tmp can be found later.

    Args:
        folder: where its files are; the sockets of the server before on this folder are removed.
        ports: for gRPC, by the part of the server.
    """
    remove_sockets(folder)
    places = [_PLACE.format(part=part, port=port) for part, port in ports.items()]
    (folder / _NOTE).write_text("\n".join(places), encoding="utf-8")
    try:
        yield
    except BaseException:
        remove_sockets(folder)
        raise


def remove_sockets(folder: Path) -> None:
    """Remove the sockets of a server that has ended, unless another one listens there.

    Args:
        folder: where its files are.
    """
    note = folder / _NOTE
    if not note.is_file():
        return
    for place in note.read_text(encoding="utf-8").splitlines():
        if _nobody_listens(place):
            Path(place).unlink(missing_ok=True)


def _nobody_listens(place: str) -> bool:
    """Say whether a socket is left over; False where there is none, or it is somebody else's."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(place)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
