"""Ctrl-C, SIGTERM and SIGHUP while trainings run."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from vinedresser.errors import LaunchError, VinedresserError
from vinedresser.foreign_signals import handle_foreign
from vinedresser.masking import masked_text
from vinedresser.objects import Location
from vinedresser.plain_logs import json_line, logs_json

if TYPE_CHECKING:
    from prefect import Flow

__all__ = ["FlowEnd", "exit_code", "interrupts_stop", "leave", "run_flow"]

_ASKED = "asking the runs to stop; press Ctrl-C again to exit at once"
# Seconds to wait for events that Prefect has not yet sent, to a private server and to another one.
_PRIVATE_EVENTS, _EVENTS = 5.0, 120.0
_SHOW_CURSOR = b"\x1b[?25h"


@contextmanager
def interrupts_stop(where: Location | list[Path]) -> Iterator[None]:
    """Stop the runs with a checkpoint on the first signal, and exit at once on the second.

    After the first one, the handlers stay: what remains is the end of the command. Signals that do
    not ask for an end, such as SIGUSR1, are passed on to the trainings, also after the body.

    Args:
        where: the store, or the directories of the runs.
    """
    from vinedresser.infra.supervise.launcher import pass_on
    from vinedresser.tasks.interruption import INTERRUPTED, REASONS, interrupt

    terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]

    def ask(number: int, _frame: FrameType | None) -> None:
        for one in before:
            signal.signal(one, _exit_at_once)
        _forsake_closed(terminals)
        with suppress(OSError):
            line = json_line(_ASKED) if logs_json() else f"vinedresser: {_ASKED}"
            os.write(2, f"{line}\n".encode())
        # Before the request: the supervisor, which may have got the signal itself, waits for it.
        pass_on(number)
        interrupt(where, signal.Signals(number))

    INTERRUPTED.clear()
    handle_foreign(pass_on)
    before = {}
    for number in REASONS:
        # What nohup has the process ignore stays ignored.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, ask)
    INTERRUPTED.handler = ask
    try:
        yield
    finally:
        INTERRUPTED.handler = None
        if not INTERRUPTED.is_set():
            for number, handler in before.items():
                signal.signal(number, handler)


class FlowEnd(NamedTuple):
    """The end of a flow.

    Attributes:
        result: what it returned.
        problem: what Prefect's server did not take; "" for nothing.
        unsent: whether Prefect still has something to send.
    """

    result: Any
    problem: str = ""
    unsent: bool = False


def run_flow(
    flow: Flow[..., Any], work: Callable[[], Any], parameters: Mapping[str, Any], store: Location
) -> FlowEnd:
    """Run a flow on settings that have been read, under `interrupts_stop`.

    If a signal ends it before it has begun to work, exit.

    Runs do not need Prefect once their flow has begun to work: if its server is gone at the end,
    the result is returned all the same.

    Args:
        work: its work, with the settings.
        parameters: its parameters, which Prefect shows.

    Raises:
        LaunchError: Prefect's server was gone before the flow had begun to work.
        Exception: any error of the flow.
    """
    from vinedresser.infra.services.telemetry import end_telemetry

    try:
        return _end_of(flow, work, parameters, store)
    except BaseException:
        # The command ends without `leave`; at exit, the SDK would wait for a minute.
        end_telemetry()
        raise


def _end_of(
    flow: Flow[..., Any], work: Callable[[], Any], parameters: Mapping[str, Any], store: Location
) -> FlowEnd:
    from httpx import HTTPError
    from prefect.events.worker import EventsWorker
    from prefect.exceptions import PrefectException, TerminationSignal
    from prefect.settings import get_current_settings

    from vinedresser.flows.handover import with_settings
    from vinedresser.infra.services.servers import is_private
    from vinedresser.tasks.interruption import INTERRUPTED
    from vinedresser.tasks.reconcile.flow_record import keep_flow
    from vinedresser.tasks.termination import WORK

    url = get_current_settings().api.url or ""
    private = is_private(url)
    server = "Prefect's private server" if private else f"Prefect's server at {masked_text(url)}"
    WORK.clear()
    with interrupts_stop(store):
        try:
            handed: Callable[..., Any] = with_settings(flow, work)
            result = handed(**parameters, return_state=True).result(raise_on_failure=False)
        except TerminationSignal as signalled:
            sys.exit(128 + signalled.signal)
        except (HTTPError, PrefectException, RuntimeError) as error:
            gone = f"{server} has ended or does not answer"
            if WORK.future is None:
                raise LaunchError(f"{gone}; nothing was started: {error}") from error
            # Its own errors count more.
            result = WORK.future.result()
            if private:
                return FlowEnd(result, f"{gone}; the work was completed without it", unsent=True)
            keep_flow(store)
            settle = f"`vinedresser reconcile {store}` ends the flow run there"
            return FlowEnd(result, f"{gone}; the work was completed without it; {settle}", True)
    # At exit, the interpreter would wait for each event separately, and without end.
    patience = _PRIVATE_EVENTS if private else _EVENTS
    sent = EventsWorker.drain_all(timeout=patience)
    if isinstance(result, VinedresserError) and INTERRUPTED.is_set():
        # Such as a download that was broken off.
        leave(2, FlowEnd(None, str(result)))
    if isinstance(result, BaseException):
        raise result
    if not isinstance(sent, tuple) or not sent[1]:
        return FlowEnd(result)
    if private:
        return FlowEnd(result, unsent=True)
    missing = f"{server} did not take the last events of the flow within {patience:g} s"
    return FlowEnd(result, missing, unsent=True)


def leave(code: int, ended: FlowEnd) -> NoReturn:
    """Exit after a flow, and name what Prefect's server did not take.

    Args:
        code: the code of a command that was not interrupted.
    """
    from vinedresser.infra.services.telemetry import end_telemetry

    end_telemetry()
    if ended.problem:
        from vinedresser.cli.views.console import say

        say(f"vinedresser: {ended.problem}", style="red")
    code = exit_code(code or (1 if ended.problem else 0))
    if ended.unsent:
        # Everything else has ended, or ends with this process.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def exit_code(code: int) -> int:
    """Return the exit code of a command: 128 + N if signal N interrupted it.

    Args:
        code: the code of a command that was not interrupted.
    """
    from vinedresser.tasks.interruption import INTERRUPTED

    return code if INTERRUPTED.number is None else 128 + INTERRUPTED.number


def _exit_at_once(number: int, _frame: FrameType | None) -> None:
    """Exit without a word; supervisors, judges and the server notice the end of this process."""
    if os.isatty(1):
        # The display of progress has hidden it.
        os.write(1, _SHOW_CURSOR)
    os._exit(128 + number)


def _forsake_closed(terminals: list[int]) -> None:
    """Discard output to terminals that have been closed, where printing fails."""
    closed = [descriptor for descriptor in terminals if not os.isatty(descriptor)]
    if closed:
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        for descriptor in closed:
            os.dup2(nowhere, descriptor)
        os.close(nowhere)
