"""Runs from outside: prepare one, start it, wait for its end or ask for it, settle what is left."""

from __future__ import annotations

from vinedresser.infra.launcher.command_check import check_command
from vinedresser.infra.launcher.preparing import prepare_run
from vinedresser.infra.launcher.settlement import settle
from vinedresser.infra.launcher.starting import start
from vinedresser.infra.launcher.stopping import request_stop
from vinedresser.infra.launcher.waiting import supervisor_alive, wait_for_exit

__all__ = [
    "check_command",
    "prepare_run",
    "request_stop",
    "settle",
    "start",
    "supervisor_alive",
    "wait_for_exit",
]
