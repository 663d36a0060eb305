"""`vinedresser doctor`: what is wrong with the installation, and what to do about it."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vinedresser.cli.options import DEFAULT_STORE, check_directory
from vinedresser.objects import Location, parse_location

if TYPE_CHECKING:
    from rich.console import Console

    from vinedresser.tasks.health.check import Check

__all__ = ["doctor", "print_troubles"]

_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red", "unknown": "magenta"}


def doctor(
    store: Annotated[
        str | None,
        typer.Argument(metavar="STORE", help="Directory of the runs or s3://… (default: runs)."),
    ] = None,
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per check instead.")
    ] = False,
) -> None:
    """Look at packages, machine, servers, store and MLflow, and say what is wrong.

    Changes nothing. The exit code is 0 if nothing is broken and everything could be looked at.
    """
    from vinedresser.cli.views.console import console, say
    from vinedresser.infra.services.prefect_environment import use_standing
    from vinedresser.tasks.health.examination import examine

    place = _store(store)
    # Before Prefect is imported, which reads its settings once.
    use_standing()
    counts: Counter[str] = Counter()
    for check in examine(place):
        counts[check.state] += 1
        if as_json:
            typer.echo(json.dumps(asdict(check)))
        else:
            _print_check(check, console)
    if not as_json:
        bad = [f"{counts[state]} {state}" for state in ("problem", "warning", "unknown")]
        say(f"{counts['ok']} ok, {', '.join(bad)}")
    sys.exit(1 if counts["problem"] or counts["unknown"] else 0)


def print_troubles(to: Console) -> None:
    """Print what is wrong with the packages, the machine and its servers, if anything is.

    Args:
        to: where to print.
    """
    from vinedresser.tasks.health.examination import examine_machine

    for check in examine_machine(scheduler=False):
        if check.state != "ok":
            _print_check(check, to)


def _print_check(check: Check, to: Console) -> None:
    from vinedresser.cli.views.console import plain, say

    line = plain(f"{check.state:<8}", _STYLES[check.state])
    say(line.append_text(plain(f" {check.area}: {check.subject}: {check.seen}")), to)
    if check.remedy:
        say(f"         try: {check.remedy}", to, style="dim")


def _store(store: str | None) -> Location | None:
    """Return the store to look at; None if the default one does not exist.

    Raises:
        ConfigError: a store was named that is no directory.
    """
    place = parse_location(store or str(DEFAULT_STORE))
    if store is None and not Path(place).is_dir():
        return None
    check_directory(place)
    return place
