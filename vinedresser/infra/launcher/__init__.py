"""Control of runs from outside: prepare, start, adopt, await, stop and settle them."""

from __future__ import annotations

from vinedresser.infra.launcher.adopting import adopt
from vinedresser.infra.launcher.command_check import check_command
from vinedresser.infra.launcher.preparing import prepare_run
from vinedresser.infra.launcher.settlement import (
    abandon,
    end_processes,
    end_without_record,
    settle,
)
from vinedresser.infra.launcher.starting import start, supervise
from vinedresser.infra.launcher.stopping import request_stop
from vinedresser.infra.launcher.waiting import supervisor_alive, wait_for_exit

__all__ = [
    "abandon",
    "adopt",
    "check_command",
    "end_processes",
    "end_without_record",
    "prepare_run",
    "request_stop",
    "settle",
    "start",
    "supervise",
    "supervisor_alive",
    "wait_for_exit",
]
