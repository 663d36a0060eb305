"""`vinedresser rerun`: how to run a training again as it was, and what is missing for that."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from vinedresser.cli.options import RunArgument


def rerun(
    run: RunArgument,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object instead.")] = False,
) -> None:
    """Say how to run a training again as it was, and what of it differs here.

    Starts nothing. The exit code is 1 if code, arguments, packages or machine differ.
    """
    from vinedresser.cli.views.console import plain, say
    from vinedresser.store.reading.reader import open_run
    from vinedresser.tasks.lifecycle.repeating import repetition

    found = repetition(open_run(run))
    if as_json:
        typer.echo(json.dumps({**asdict(found), "lines": found.lines}, indent=1))
    else:
        for line in found.lines:
            say(line)
        for one in found.differences:
            say(plain("differs  ", "yellow").append_text(plain(f"{one.subject}: {one.seen}")))
            if one.remedy:
                say(f"         try: {one.remedy}", style="dim")
        for sentence in found.unknown:
            say(plain("unknown  ", "magenta").append_text(plain(sentence)))
    sys.exit(1 if found.differences else 0)
