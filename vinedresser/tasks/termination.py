"""What SIGTERM does to a flow: its trainings save their checkpoint, and it ends in good order.

A Prefect worker sends it when the flow run is cancelled, and SIGKILL 30 seconds later. Prefect
turns it into an exception that may strike the main thread anywhere, half a run made or half a trial
concluded. So the work of a flow is done on a thread of its own, and the main thread only waits.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import copy_context
from typing import TypeVar

from prefect.exceptions import TerminationSignal

from vinedresser.errors import VinedresserError
from vinedresser.infra.guard import guard_descendants
from vinedresser.store.records import FLOW_VARIABLE
from vinedresser.store.storage import Location
from vinedresser.tasks.interruption import TERMINATION, interrupt

__all__ = ["ends_in_order"]

T = TypeVar("T")

_log = logging.getLogger(__name__)


def ends_in_order(work: Callable[[], T], store: Location) -> T:
    """Do the work of a flow; on SIGTERM ask its trainings to stop, and see it to its end.

    Args:
        work: to be done.
        store: that has the runs.

    Returns:
        What the work returns.

    Raises:
        TerminationSignal: there was a SIGTERM, and all has ended.
        BaseException: whatever the work raises.
    """
    if FLOW_VARIABLE not in os.environ:
        # Nobody watches over a flow that a worker started: should it be killed, judges live on.
        guard_descendants()
    if threading.current_thread() is not threading.main_thread():
        return work()
    done: Future[T] = Future()
    # A daemon: on the second Ctrl-C nothing is waited for.
    threading.Thread(
        target=copy_context().run, args=(_do, work, done), name="flow", daemon=True
    ).start()
    signalled = None
    while not done.done():
        try:
            wait([done])
        except TerminationSignal as signal:
            signalled = signal
            _stop_all(store)
    if signalled is not None:
        raise signalled
    return done.result()


def _do(work: Callable[[], T], done: Future[T]) -> None:
    try:
        done.set_result(work())
    except BaseException as error:  # noqa: BLE001 - it is raised again, where the flow waits for it
        done.set_exception(error)


def _stop_all(store: Location) -> None:
    try:
        interrupt(store, TERMINATION)
    except (VinedresserError, OSError) as error:
        # Whoever was not asked stops when this process ends.
        _log.warning("not all trainings could be asked to stop: %s", error)
