"""A process that judges one run by one group of rules: ``python -m vinedresser.rules.worker``.

    worker RUN --group G --spec FILE     FILE: {"rules": {"nonfinite": {}, …}, "actions": {…}}

With ``"digest": {"sweep": NAME}`` in the file, messages are left to the sweep of the run.

The worker waits for the run to begin, writes findings/G.jsonl and checks/G.json, takes the actions
that follow the findings and records them in actions/G.jsonl. It ends with the run or with its
parent. It has no other state: a restarted worker judges from the first step, makes the same
findings, and takes the actions that were not taken.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from vinedresser.errors import ConfigError, StoreError, VinedresserError
from vinedresser.foreign_signals import handle_foreign
from vinedresser.objects import LocalStorage
from vinedresser.plain_text import visible
from vinedresser.rules.actions.dispatcher import Dispatcher
from vinedresser.rules.actions.plan import ActionPlan
from vinedresser.rules.base import Rule
from vinedresser.rules.causes.suspicions import SuspicionWriter
from vinedresser.rules.engine import Engine
from vinedresser.rules.findings_file import FindingsFile
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import rules_from_table
from vinedresser.store.finding import Finding
from vinedresser.store.json_values import DAMAGE, parse_json
from vinedresser.store.reading.awaiting import await_run
from vinedresser.store.reading.reader import Run
from vinedresser.store.reading.step import Step
from vinedresser.store.records import ChecksRecord, checks_key, write_record

__all__ = ["end_with_parent", "judge_run", "main"]

# Seconds between two checks for the parent.
_PARENT_LOOK = 0.2
# Bytes of a file with rules.
_MOST_BYTES = 16 << 20
# Seconds to wait for the run to begin.
_BEGIN = 60.0


def main(arguments: list[str] | None = None) -> int:
    """Judge a run until it is over; return the exit code.

    Args:
        arguments: command line arguments; None: those of the process.
    """
    parser = argparse.ArgumentParser(prog="vinedresser.rules.worker", description=__doc__)
    parser.add_argument("run", help="run directory")
    parser.add_argument("--group", required=True, help="name of the rule group and its files")
    parser.add_argument("--spec", required=True, type=Path, help="JSON file with the rules")
    options = parser.parse_args(arguments)
    handle_foreign()
    end_with_parent()
    return judge_run(options.run, options.group, options.spec)


def judge_run(location: str, group: str, spec: Path) -> int:
    """Judge a run until it is over; write errors to standard error.

    Args:
        group: name of the rule group and of its files.
        spec: JSON file with the rules and actions.

    Returns:
        Exit code: 2 for invalid settings, 3 if the storage failed, 1 for other errors, else 0.
    """
    try:
        table, where = _table(spec, "rules"), f"{spec}: rules"
        rules = rules_from_table(table, where=where)
        actions = _table(spec, "actions", {})
        plan = ActionPlan.from_tables(actions, table, where=f"{spec}: actions", where_rules=where)
        objective = _table(spec, "suspicions", {})
        digest = bool(_table(spec, "digest", {}))
        run = await_run(location, _BEGIN)
        _judge(run, rules, plan, group, objective, messages=not digest)
    except VinedresserError as error:
        sys.stderr.write(f"vinedresser.rules.worker: {visible(str(error))}\n")
        return 2 if isinstance(error, ConfigError) else 3 if isinstance(error, StoreError) else 1
    return 0


def _judge(
    run: Run,
    rules: list[Rule],
    plan: ActionPlan,
    group: str,
    objective: dict[str, Any],
    *,
    messages: bool,
) -> None:
    """Judge a run until it is over and all actions are taken.

    Args:
        plan: actions that follow findings.
        group: name of the rule group and of its files.
        objective: metric and mode of a sweep, whose suspicions are stored; empty: none.
    """
    findings = FindingsFile(run.storage, group)
    dispatcher = Dispatcher(run, plan, group, messages=messages)

    def take(finding: Finding) -> None:
        findings.add(finding)
        dispatcher.take(finding)

    suspicions = None
    if objective:
        metric, mode = str(objective.get("metric")), str(objective.get("mode"))
        suspicions = SuspicionWriter(run.storage, group, metric, mode, dispatcher.stops)

    def see(step: Step, engine: Engine) -> None:
        dispatcher.see(step)
        if suspicions is not None:
            suspicions.take(step, engine)

    key = checks_key(group)
    write_record(run.storage, ChecksRecord([rule.name for rule in rules]), key=key)
    found = judge(run, rules, live=True, on_finding=take, stopping=dispatcher, on_step=see)
    findings.close()
    dispatcher.close()
    if found.checks is not None:
        write_record(run.storage, found.checks, key=key)


def _table(spec: Path, key: str, default: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a table of the file, or the default if it is missing and a default is given."""
    try:
        document = parse_json(LocalStorage(spec.parent).get(spec.name, 0, _MOST_BYTES))
        table = document[key] if default is None else document.get(key, default)
    except StoreError as error:
        raise ConfigError(f"the rules cannot be read: {error}") from error
    except DAMAGE as error:
        raise ConfigError(f'{spec}: must be a JSON file with {{"{key}": …}}: {error!r}') from error
    if not isinstance(table, dict):
        raise ConfigError(f"{spec}: {key}: must be a table, not {table!r}")
    return table


def end_with_parent() -> None:
    """End this process when its parent ends, in whatever way.

    A thread polls: the kernel's signal (PR_SET_PDEATHSIG) comes when the thread that started this
    process ends, which in an orchestrator is the thread of a task.
    """
    parent = os.getppid()

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_LOOK)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=look, name="parent", daemon=True).start()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    sys.exit(main())
