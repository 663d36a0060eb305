"""End a flow in order on SIGTERM: its trainings save their checkpoints first.

A Prefect worker sends SIGTERM when the flow run is cancelled, and SIGKILL 30 seconds later. Prefect
turns it into an exception that may strike the main thread anywhere, such as halfway through making
a run. So the work of a flow is done on another thread, and the main thread only waits. The command
line handles its signals itself.

Prefect also raises an exception in the main thread if it cannot renew the lease of a deployment's
concurrency slot, which happens when its server is away at the wrong moment. That is no reason to
end trainings.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import copy_context
from typing import Any, TypeVar

from prefect.exceptions import TerminationSignal

from vinedresser.errors import VinedresserError
from vinedresser.foreign_signals import handle_foreign
from vinedresser.infra.guard import guard_descendants
from vinedresser.infra.supervise.launcher import pass_on
from vinedresser.objects import Location
from vinedresser.plain_logs import format_plainly, plain_logger
from vinedresser.store.records import FLOW_VARIABLE
from vinedresser.tasks.interruption import INTERRUPTED, interrupt

__all__ = ["WORK", "Work", "ends_in_order"]

T = TypeVar("T")


class Work:
    """The work of a flow in this process, as `ends_in_order` does it.

    Attributes:
        future: its result, which does not depend on Prefect; None if no flow has begun to work.
    """

    future: Future[Any] | None = None

    def clear(self) -> None:
        """Forget the work of an earlier flow."""
        self.future = None


WORK = Work()

# Seconds after which the main thread looks for signals. The kernel may give one to another thread,
# such as SIGHUP together with SIGCONT when a terminal is closed, and Python handles it in the main
# thread only, once that runs.
_LOOK = 0.2

_log = plain_logger(__name__)


def ends_in_order(work: Callable[[], T], store: Location) -> T:
    """Do the work of a flow and return its result; on SIGTERM ask its trainings to stop first.

    Raises:
        TerminationSignal: SIGTERM was received, which the command line does not handle, and
            everything has ended.
        BaseException: any error of the work.
    """
    # Messages have text of runs, such as the names of damaged files.
    format_plainly("prefect")
    if FLOW_VARIABLE not in os.environ:
        # A flow that a worker started has no guard: if it is killed, its judges would survive.
        guard_descendants()
    if threading.current_thread() is not threading.main_thread():
        return work()
    if INTERRUPTED.handler is not None:
        # Prefect has replaced it, and puts it back at the end of the flow.
        signal.signal(signal.SIGTERM, INTERRUPTED.handler)
    handle_foreign(pass_on)
    done: Future[T] = Future()
    WORK.future = done
    # A daemon: the second Ctrl-C waits for nothing.
    threading.Thread(
        target=copy_context().run, args=(_do, work, done), name="flow", daemon=True
    ).start()
    signalled = None
    while not done.done():
        try:
            wait([done], _LOOK)
        except TerminationSignal as error:
            signalled = error
            _stop_all(store)
        except asyncio.CancelledError:
            _log.warning("Prefect lost the slot of this run; another run may start beside it")
    if signalled is not None:
        raise signalled
    return done.result()


def _do(work: Callable[[], T], done: Future[T]) -> None:
    try:
        done.set_result(work())
    except BaseException as error:  # noqa: BLE001 - raised again where the flow waits
        done.set_exception(error)


def _stop_all(store: Location) -> None:
    try:
        interrupt(store, signal.SIGTERM)
    except (VinedresserError, OSError) as error:
        # A training that was not asked stops when this process ends.
        _log.warning("not all trainings could be asked to stop: %s", error)
