"""`vinedresser monitor`: watch a served model."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from vinedresser.cli.interrupts import leave, run_flow

# 3 is that of a run that a rule has stopped.
_CODES = {"drift": 1, "no drift seen": 0, "cannot tell": 4}
_FAILED = 2
_STYLES = {"bad": "red", "doubtful": "yellow", "good": "green"}


def monitor(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A monitor.toml.")],
    *,
    rearm: Annotated[
        bool, typer.Option("--rearm", help="Begin again, with a new baseline and budget.")
    ] = False,
) -> None:
    """Judge the requests of a served model that have arrived since the last time.

    Compares each window of requests with a baseline. On an alarm, saliency maps of its requests are
    computed and shown in MLflow. The exit code is 0 if no drift was seen in what could be judged, 1
    while there is an alarm, 4 if nothing could be judged, and 2 if something failed.
    """
    from vinedresser.cli.views.console import LEVELS, console, relative, say, tell
    from vinedresser.explain.formatting import count
    from vinedresser.infra.catalog.stores import ensure_store
    from vinedresser.infra.services.prefect_environment import prepare_prefect
    from vinedresser.tasks.config.monitor_file import load_monitor

    checked = load_monitor(file)
    ensure_store(checked.state)
    say("starting Prefect and MLflow ...")
    prefect_serves = prepare_prefect(checked.state)
    from vinedresser.flows.monitor import Monitored, judge_requests
    from vinedresser.flows.monitor import monitor as monitor_flow
    from vinedresser.infra.services.tracking import start_preparing

    start_preparing(checked.tracking_uri, checked.tracking_experiment, say)
    prefect_serves()
    work = partial(judge_requests, checked, rearm=rearm)
    ended = run_flow(monitor_flow, work, {"path": checked.path, "rearm": rearm}, checked.state)
    found: Monitored = ended.result
    judged = count(len(found.windows), "new window")
    style = _STYLES[found.answer.tone]
    line = f"{checked.name}: {judged} judged; {found.answer.text}"
    fields = {"answer": found.answer.answer, "alert": found.answer.alert or None}
    windows = len(found.windows)
    level = LEVELS.get(style, "info")
    if not tell(line, level, to=console, monitor=checked.name, windows=windows, **fields):
        console.print(line, style=style, soft_wrap=True)
    for problem in found.problems:
        console.print(f"vinedresser: {problem}", style="red", soft_wrap=True)
    console.print(f"report {relative(found.folder / 'monitor.html')}", soft_wrap=True)
    code = _CODES[found.answer.answer]
    if found.answer.alert:
        code = _CODES["drift"]
    elif found.problems or ended.problem:
        code = _FAILED
    leave(code, ended)
