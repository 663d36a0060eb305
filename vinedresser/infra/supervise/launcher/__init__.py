"""Control of runs from outside: prepare, start, adopt, await, stop and settle them."""

from __future__ import annotations

from vinedresser.infra.supervise.launcher.adopting import adopt
from vinedresser.infra.supervise.launcher.command_check import check_command
from vinedresser.infra.supervise.launcher.passing_on import pass_on
from vinedresser.infra.supervise.launcher.preparing import prepare_run
from vinedresser.infra.supervise.launcher.settlement import (
    abandon,
    end_processes,
    end_without_record,
    settle,
)
from vinedresser.infra.supervise.launcher.starting import start, supervise
from vinedresser.infra.supervise.launcher.stopping import request_stop
from vinedresser.infra.supervise.launcher.waiting import supervisor_alive, wait_for_exit

__all__ = [
    "abandon",
    "adopt",
    "check_command",
    "end_processes",
    "end_without_record",
    "pass_on",
    "prepare_run",
    "request_stop",
    "settle",
    "start",
    "supervise",
    "supervisor_alive",
    "wait_for_exit",
]
