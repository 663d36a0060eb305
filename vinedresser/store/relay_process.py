"""Starting, monitoring and awaiting the relay process of a spool."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from vinedresser import errors
from vinedresser.errors import KeyMissing, StoreError, UploadFailed, VinedresserError
from vinedresser.foreign_signals import holding_foreign
from vinedresser.objects import LocalStorage
from vinedresser.objects.files import APPEND, open_file
from vinedresser.store.records import environment_without_run
from vinedresser.store.spool import PRIVATE, lock_spool, read_target, spools

__all__ = ["RelayProcess", "recover_spools"]

# Seconds that a relay may take to reach its store and claim the run.
_START = 120.0
# -P: a module beside the training script must not shadow the standard library's.
_COMMAND = (sys.executable, "-P", "-m", "vinedresser.infra.supervise.relay")
# Exit code of a relay that has said why its upload is not complete.
_SAID = 3
_ERRORS = f"{PRIVATE}/errors.txt"
# Maximum number of starts of a relay that is killed.
_STARTS = 5


class RelayProcess:
    """A running relay of a spool, from the view of its parent; it is restarted if it is killed.

    The spool is removed once everything is uploaded, unless ``keep`` is set.

    Args:
        lock: descriptor of its lock, which is passed to the relay.
        keep: keep the spool after the upload.

    Raises:
        AlreadyARun: the location already holds another run.
        SecondWriter: another process writes the same rank.
        UploadFailed: the relay cannot be started, or is killed whenever it is.
        StoreError: the store refused or is unreachable.
    """

    def __init__(self, folder: Path, lock: int, *, keep: bool = False) -> None:
        self.folder = folder
        self._keep = keep
        self._unheard: list[str] = []
        self._on_message: Callable[[str], object] = self._unheard.append
        self._done = False
        self._starts = 1
        self._process = _spawn(folder, lock)
        try:
            self._await_claim()
        except BaseException:
            self._process.kill()
            self._reap()
            raise
        self._thread = threading.Thread(target=self._hear, name="vinedresser-relay", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether everything is uploaded."""
        return self._done

    @property
    def alive(self) -> bool:
        """Whether the relay is still running."""
        return self._thread.is_alive()

    @property
    def pid(self) -> int:
        """The current process id of the relay."""
        return self._process.pid

    def listen(self, on_message: Callable[[str], object]) -> None:
        """Pass each message of the relay to a function, called on a thread."""
        self._on_message = on_message
        while self._unheard:
            on_message(self._unheard.pop(0))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until everything is uploaded.

        Args:
            timeout: maximum seconds to wait; None: unlimited.

        Returns:
            Whether everything is uploaded. If not, the relay continues in the background, or has
            reported why it stopped.
        """
        self._thread.join(timeout)
        return self.done

    def leave(self) -> None:
        """Leave the relay running; suppresses Python's warning about it at exit."""
        if self._process.returncode is None:
            self._process.returncode = 0

    def _await_claim(self) -> None:
        """Wait until the relay has claimed the run; restart it if it is killed before."""
        deadline = time.monotonic() + _START
        while not self._claims(deadline - time.monotonic()):
            if time.monotonic() >= deadline:
                raise StoreError(f"{self.folder}: the store did not respond in {_START:.0f} s")
            if not self._restart(self._reap()):
                raise UploadFailed(
                    f"{self.folder}: the upload could not be started: {_last_words(self)}"
                )

    def _claims(self, patience: float) -> bool:
        """Wait until the relay has claimed the run; return False if it ends before."""
        # Without a response from the store, the relay would never report.
        timer = threading.Timer(patience, self._process.kill)
        timer.daemon = True
        timer.start()
        try:
            for message in _messages(self._process):
                if "error" in message:
                    raise _known_error(message["error"], message["message"])
                if "ready" in message:
                    return True
            return False
        finally:
            timer.cancel()

    def _reap(self) -> int:
        """Wait for the end of the relay, and return its exit code or the negative signal number."""
        code = self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code

    def _restart(self, code: int) -> bool:
        """Restart a relay that has ended if it was killed; return False if not, or too often."""
        if code >= 0 or self._starts == _STARTS:
            return False
        lock = lock_spool(self.folder)
        if lock is None:
            return False
        self._on_message("the upload process was killed; restarting it")
        self._starts += 1
        self._process = _spawn(self.folder, lock)
        return True

    def _hear(self) -> None:
        try:
            code = self._listen_to_the_end()
        except UploadFailed as error:
            self._on_message(f"the upload has stopped: {error}")
            return
        if self._done and not self._keep:
            shutil.rmtree(self.folder, ignore_errors=True)
        if code not in (0, _SAID) and not self._done:
            self._on_message(f"the upload has stopped: {_last_words(self)}")

    def _listen_to_the_end(self) -> int:
        """Pass on the messages of the relay, restarted if it is killed; return its exit code."""
        while True:
            for message in _messages(self._process):
                if "say" in message:
                    self._on_message(message["say"])
                self._done = self._done or "done" in message
            code = self._reap()
            if self._done or not self._restart(code):
                return code


def recover_spools(
    on_message: Callable[[str], object], *, timeout: float | None = 0.0, store: str = ""
) -> list[tuple[str, bool]]:
    """Upload the spools that crashes left behind on this machine.

    Args:
        on_message: called with each message to the user.
        timeout: maximum seconds to wait for all uploads, which then continue in the background;
            None: unlimited.
        store: only spools of this store; "": all.

    Returns:
        The URL of each run, and whether it is completely uploaded.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    started: list[tuple[str, RelayProcess]] = []
    results: list[tuple[str, bool]] = []
    for folder in spools(store):
        target, lock = read_target(folder), lock_spool(folder)
        if target is None or lock is None:
            continue
        try:
            relay = RelayProcess(folder, lock)
        except VinedresserError as error:
            on_message(f"{folder}: {error}")
            results.append((target.url, False))
        else:
            relay.listen(on_message)
            started.append((target.url, relay))
    for url, relay in started:
        rest = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        results.append((url, relay.wait(rest)))
        relay.leave()
    return results


def _spawn(folder: Path, lock: int) -> subprocess.Popen[bytes]:
    target = read_target(folder)
    endpoint = {"AWS_ENDPOINT_URL": target.endpoint} if target and target.endpoint else {}
    try:
        with open(open_file(folder, _ERRORS, APPEND), "ab") as output, holding_foreign():
            return subprocess.Popen(
                [*_COMMAND, str(folder), str(lock)],
                env={**environment_without_run(), **endpoint},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                pass_fds=(lock,),
                start_new_session=True,
            )
    except OSError as error:
        raise UploadFailed(
            f"{folder}: the upload process cannot be started: {error.strerror or error}"
        ) from error
    finally:
        os.close(lock)


def _messages(process: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the messages of a relay until it ends."""
    assert process.stdout is not None
    for line in process.stdout:
        # A killed relay may leave half a line.
        with suppress(ValueError):
            yield json.loads(line)


def _known_error(kind: str, message: str) -> VinedresserError:
    found = getattr(errors, kind, StoreError)
    error: VinedresserError = found(message)
    return error


def _last_words(relay: RelayProcess) -> str:
    try:
        text = LocalStorage(relay.folder).get(_ERRORS).decode(errors="replace").strip()
    except KeyMissing:
        text = ""
    return text.rpartition("\n")[2] or "the upload process ended without a message"
