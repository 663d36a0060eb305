"""The application: its commands, in the order of the help, and the handling of errors."""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from vinedresser.cli.capturing import capture
from vinedresser.cli.checking import check
from vinedresser.cli.comparing import compare
from vinedresser.cli.data import data
from vinedresser.cli.deploying import deploy
from vinedresser.cli.doctor import doctor
from vinedresser.cli.explaining import explain
from vinedresser.cli.inspecting import judge, show
from vinedresser.cli.live.asking import ask
from vinedresser.cli.live.steering import checkpoint, pause, resume, set_parameters, snapshot, stop
from vinedresser.cli.live.watching import watch
from vinedresser.cli.log_reading import logs
from vinedresser.cli.missing_packages import missing_package
from vinedresser.cli.monitoring import monitor
from vinedresser.cli.pruning import prune
from vinedresser.cli.rerunning import rerun
from vinedresser.cli.retention import gc, pin, rm
from vinedresser.cli.rules import rules
from vinedresser.cli.running import run
from vinedresser.cli.sagemaker import sagemaker
from vinedresser.cli.servers import down, ui, up
from vinedresser.cli.snapshots import replay, snapshots
from vinedresser.cli.starting import init
from vinedresser.cli.stores import reconcile, status
from vinedresser.cli.sweeping import enqueue, sweep
from vinedresser.cli.training import train
from vinedresser.cli.transferring import copy, export_, import_
from vinedresser.errors import ConfigError, VinedresserError
from vinedresser.foreign_signals import handle_foreign
from vinedresser.plain_logs import LOG_FORMAT, json_line, line_formatter
from vinedresser.plain_text import visible
from vinedresser.version import __version__

__all__ = ["app", "main"]

app = typer.Typer(
    help="Watch, judge, stop and record training jobs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
# Kept in messages.
_LINES = "\n\t"
# Arguments and options after the script are its own.
_SCRIPT_LINE = {"allow_interspersed_args": False, "ignore_unknown_options": True}


def main() -> None:
    """Run the command line.

    A VinedresserError, an optional package that is not installed, or that the output's disk is full
    is printed as one line, and the exit code is 2.
    """
    # Commands that train pass them on; they must not end another one either.
    handle_foreign()
    try:
        # Until something else configures logging: messages may have data of runs.
        if logging.lastResort is not None:
            logging.lastResort.setFormatter(line_formatter())
        _refuse_renamed(sys.argv[1:])
        app()
    except VinedresserError as error:
        _end(str(error))
    except ModuleNotFoundError as error:
        sentence = missing_package(error)
        if sentence is None:
            raise
        _end(sentence)
    except OSError as error:
        # Those of runs and pictures are a StoreError or ConfigError.
        if error.errno != errno.ENOSPC:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        _end(f"{error.filename or 'the output'}: cannot be written: {error.strerror}")


def _end(sentence: str) -> NoReturn:
    # Also that the variable has another value.
    line = f"vinedresser: {sentence}"
    if os.environ.get(LOG_FORMAT) == "json":
        line = json_line(sentence, "error")
    print(visible(line, keep=_LINES), file=sys.stderr)  # noqa: T201
    sys.exit(2)


def _refuse_renamed(arguments: Sequence[str]) -> None:
    """Refuse an option by its old name, unless it belongs to a script."""
    if arguments[:1] not in (["train"], ["sweep"]):
        return
    for argument in arguments[1:]:
        if argument.partition("=")[0] == "--at-once":
            raise ConfigError("--at-once: renamed to --max-concurrent")


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"vinedresser {__version__}")
        raise typer.Exit


app.command(context_settings=_SCRIPT_LINE)(run)
app.command(context_settings=_SCRIPT_LINE)(check)
for _command in (
    *(init, train, sweep, enqueue, prune, monitor, explain, deploy, sagemaker),
    *(
        judge,
        show,
        logs,
        watch,
        compare,
        ask,
        capture,
        pause,
        resume,
        stop,
        checkpoint,
        snapshot,
        snapshots,
        replay,
        rerun,
        status,
        reconcile,
        doctor,
        gc,
        rm,
        pin,
        copy,
        ui,
        up,
        down,
    ),
):
    app.command()(_command)
app.command(name="set")(set_parameters)
app.command(name="export")(export_)
app.command(name="import")(import_)
app.add_typer(rules, name="rules")
app.add_typer(data, name="data")
