"""The agent of a training: lets other programs of this user ask it while it runs."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from vinedresser.capture.live.observer import LiveObserver
from vinedresser.capture.shield import Shield
from vinedresser.errors import MissingDependency
from vinedresser.queries.live.place import agent_name, opened_folder

if TYPE_CHECKING:
    from vinedresser.capture.live.server import AgentServer

__all__ = ["Agent", "check_packages"]

# Seconds to send the last answers when the training ends.
_PATIENCE = 3.0
# Seconds after which a socket on which nobody listens is removed: one may have been bound only just
# now.
_STALE = 60.0
_AGENTS: WeakSet[Agent] = WeakSet()


def check_packages() -> None:
    """Check that what an agent needs is installed, without importing it.

    Raises:
        MissingDependency: a package is missing.
    """
    for package in ("starlette", "uvicorn"):
        if find_spec(package) is None:
            raise MissingDependency(
                f"asking a running training needs {package}: pip install 'vinedresser[live]'"
            )


class Agent:
    """Listens on a Unix socket in a folder of this user.

    Until somebody connects, its thread sleeps, and no server is loaded.

    Args:
        observer: answers queries on the training's thread.
        describe: return the run, rank and step, for clients.
        shield: reports problems.

    Raises:
        AgentAway: the folder is not this user's alone.
        OSError: the socket cannot be created.
    """

    def __init__(
        self,
        location: str,
        rank: int,
        observer: LiveObserver,
        describe: Callable[[], dict[str, Any]],
        shield: Shield,
    ) -> None:
        self.observer = observer
        self._describe = describe
        self._name = agent_name(location, rank)
        self._server: AgentServer | None = None
        self._closed = False
        self._connections: set[int] = set()
        self._wake, self._waker = os.pipe()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with opened_folder(create=True) as folder:
                _remove_stale(folder)
                with suppress(FileNotFoundError):
                    os.unlink(f"{folder}/{self._name}")
                self._listener.bind(f"{folder}/{self._name}")
                os.chmod(f"{folder}/{self._name}", 0o600)
            self._listener.listen(64)
        except BaseException:
            self._release()
            raise
        run = shield.guard("listening to clients", self._run, metered=False)
        self._thread = threading.Thread(target=run, name="vinedresser-agent", daemon=True)
        self._thread.start()
        _AGENTS.add(self)

    def close(self) -> None:
        """Send the last answers, and end the thread."""
        if self._closed:
            return
        self._closed = True
        self.observer.finish()
        os.write(self._waker, b"x")
        if self._server is not None:
            self._server.close()
        self._thread.join(_PATIENCE)
        with opened_folder() as folder, suppress(FileNotFoundError):
            os.unlink(f"{folder}/{self._name}")
        if not self._thread.is_alive():
            self._release()

    def leave_to_parent(self) -> None:
        """Let go of the sockets in a forked child, which would keep them open."""
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for number in (self._listener.fileno(), self._wake, self._waker, *self._connections):
            if number >= 0:
                # The objects stay valid, and may be closed.
                os.dup2(nothing, number, inheritable=False)
        os.close(nothing)
        self._closed = True

    def _run(self) -> None:
        """Wait for the first client; then serve."""
        ready, _, _ = select.select([self._listener.fileno(), self._wake], [], [])
        if self._wake in ready:
            return
        from vinedresser.capture.live.server import AgentServer

        server = AgentServer(self.observer, self._describe, self._listener, self._connections)
        self._server = server
        if self._closed:
            server.close()
        server.run()

    def _release(self) -> None:
        # First: a child forked from now on may have other files under these numbers.
        _AGENTS.discard(self)
        self._listener.close()
        os.close(self._wake)
        os.close(self._waker)


def _remove_stale(folder: str) -> None:
    """Remove sockets on which nobody listens any more."""
    old = time.time() - _STALE
    for entry in os.scandir(folder):
        if not entry.name.endswith(".sock") or entry.stat(follow_symlinks=False).st_mtime > old:
            continue
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(0.2)
            try:
                probe.connect(entry.path)
            except ConnectionRefusedError:
                with suppress(FileNotFoundError):
                    os.unlink(entry.path)
            except OSError:
                # It is busy, or gone.
                continue


def _forked() -> None:
    for agent in list(_AGENTS):
        agent.leave_to_parent()
    # In children of this child, the numbers may belong to other files.
    _AGENTS.clear()


os.register_at_fork(after_in_child=_forked)
