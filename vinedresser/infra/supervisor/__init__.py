"""The process beside a trainer: starts it, logs its output, ends it when asked, says how it ended.

It needs the standard library only, stays small, and has one thread: the trainer's tie to its life
(PDEATHSIG) is one to the life of the thread that forked.
"""

from __future__ import annotations

from vinedresser.infra.supervisor.supervision import Supervisor

__all__ = ["Supervisor"]
