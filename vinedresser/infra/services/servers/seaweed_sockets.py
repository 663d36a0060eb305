"""The sockets that SeaweedFS creates in /tmp, and leaves when it is killed.

Its components communicate through them. Most have fixed paths except for the port number.
"""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["noted_sockets", "remove_sockets"]

_TEMPORARY = Path("/tmp")  # noqa: S108
_PLACE = f"{_TEMPORARY}/seaweedfs-{{part}}-grpc-{{port}}.sock"
_PREFIX = "vinedresser-s3-"
_NOTE = "sockets.txt"


@contextmanager
def noted_sockets(folder: Path, ports: Mapping[str, int]) -> Iterator[dict[str, Path]]:
    """Note the sockets of a server that is started within the block, so they can be removed later.

    Args:
        folder: folder of the server's files; sockets of an earlier server are removed.
        ports: gRPC port of each component.

    Yields:
        The sockets of the components that can be told where to create them, by component.
    """
    remove_sockets(folder)
    # Not in the server's folder: the path of a socket is limited to 107 bytes.
    own = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_TEMPORARY))
    sockets = {part: own / f"{part}.sock" for part in ("filer", "s3")}
    places = [_PLACE.format(part=part, port=port) for part, port in ports.items()]
    places += map(str, sockets.values())
    (folder / _NOTE).write_text("\n".join(places), encoding="utf-8")
    try:
        yield sockets
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
    places = [Path(line) for line in note.read_text(encoding="utf-8").splitlines()]
    for place in places:
        if _is_unused(place):
            place.unlink(missing_ok=True)
    for own in {path.parent for path in places if path.parent.name.startswith(_PREFIX)}:
        # Sockets in use stay, and so does their folder.
        with suppress(OSError):
            own.rmdir()


def _is_unused(place: Path) -> bool:
    """Return whether a socket is left over; False if it is missing or another user's."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(place))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
