"""`vinedresser check`: check a training in its first seconds."""

from __future__ import annotations

from typing import Annotated

import typer

from vinedresser.cli.options import check_number, check_script_argument
from vinedresser.errors import ConfigError, did_you_mean

_SUSPICIOUS = 1


def check(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="SCRIPT [ARGS]...",
            help="A Python script, -m MODULE or any program, with its arguments.",
        ),
    ],
    *,
    skip: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Leave out this check or rule; repeatable."),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default="50, and more for batches of fewer than 8 samples",
            help="Maximum number of steps to watch.",
        ),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(
            min=1, callback=check_number, help="CPU seconds from the first call of a model."
        ),
    ] = 15.0,
    timeout: Annotated[
        float,
        typer.Option(
            min=1,
            callback=check_number,
            help="Seconds after which the script is ended in any case.",
        ),
    ] = 300.0,
) -> None:
    """Check a training in its first seconds, before hours are spent on it.

    Runs the first steps of an unchanged PyTorch or Keras script, judges them by all rules, tries
    out on copies of its model whether it can learn, and ends it. The exit code is 1 if a check is
    suspicious or the script fails.
    """
    from vinedresser.cli.views.preflight import print_preflight
    from vinedresser.preflight.launching import check_script
    from vinedresser.preflight.names import CHECKS
    from vinedresser.preflight.verdict import SUSPICIOUS
    from vinedresser.rules.registry import RULES

    check_script_argument(command, "check")
    known = (*CHECKS, *RULES)
    for name in skip or ():
        if name not in known:
            near = did_you_mean(name, known) or f"; must be {', '.join(CHECKS)} or a rule"
            raise ConfigError(f"--skip: no check {name!r}{near}")
    found = check_script(command, steps=steps, seconds=seconds, timeout=timeout, skip=skip or ())
    print_preflight(found)
    bad = any(verdict.state == SUSPICIOUS for verdict in found.verdicts)
    if bad or found.code or not found.verdicts:
        raise typer.Exit(_SUSPICIOUS)
