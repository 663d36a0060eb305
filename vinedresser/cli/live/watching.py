"""`vinedresser watch`: a local web page of a store or a run that is alive."""

from __future__ import annotations

import logging
import webbrowser
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Annotated

import typer

from vinedresser.cli.options import DEFAULT_STORE
from vinedresser.errors import ConfigError
from vinedresser.plain_logs import json_line, line_formatter, logs_json
from vinedresser.plain_text import visible


def watch(
    where: Annotated[
        str,
        typer.Argument(
            metavar="RUN|STORE", help="Run, or directory of runs, or s3://bucket/prefix."
        ),
    ] = str(DEFAULT_STORE),
    *,
    port: Annotated[int | None, typer.Option(help="Port (default: a free one).")] = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")
    ] = True,
    host: Annotated[
        str | None,
        typer.Option(
            help="Address of this machine to listen on, with tokens and TLS (default: 127.0.0.1)."
        ),
    ] = None,
    tokens: Annotated[
        Path | None, typer.Option(help="File with the people who may use the page (TOML).")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="Certificate for TLS, with those that sign it (PEM).")
    ] = None,
    private_key: Annotated[
        Path | None, typer.Option(help="Private key of the certificate (PEM).")
    ] = None,
    control: Annotated[
        bool,
        typer.Option("--control", help="Let whoever has the printed address change trainings."),
    ] = False,
    terminal: Annotated[
        bool, typer.Option("--terminal", help="Show the table in the terminal instead.")
    ] = False,
) -> None:
    """Watch runs on a local web page or in the terminal, while they train or later."""
    from vinedresser.cli.views.console import console
    from vinedresser.objects import parse_location

    if terminal:
        if not console.is_terminal:
            raise ConfigError(
                "--terminal: the output is no terminal; leave it out for the web page"
            )
        from vinedresser.cli.live.terminal_table import watch_in_terminal

        watch_in_terminal(parse_location(where))
        return
    from vinedresser.watching.people import People
    from vinedresser.watching.serving import watch as serve
    from vinedresser.watching.site import LOOPBACK, read_certificate

    if (certificate is None) != (private_key is None):
        raise ConfigError("--certificate and --private-key: must be given together")
    if control and tokens is not None:
        raise ConfigError('--control: cannot be combined with --tokens; give rights = "control"')
    people = People(tokens) if tokens else None
    tls = read_certificate(certificate, private_key) if certificate and private_key else None
    _log_changes()
    with TemporaryDirectory(prefix="vinedresser-") as private:

        def ready(address: str) -> None:
            line = f"watching at {address}   (Ctrl-C to stop)"
            # With its key, without which nobody gets in.
            typer.echo(json_line(line, masked=False) if logs_json() else visible(line))
            if browser:
                _open(address, Path(private))

        place = parse_location(where)
        serve(
            *(place, port, ready),
            host=host or LOOPBACK,
            people=people,
            owner="control" if control else "read",
            certificate=tls,
        )


def _log_changes() -> None:
    """Have the server log who changes a training, and who is refused."""
    logger, handler = logging.getLogger("vinedresser.watching"), logging.StreamHandler()
    line = logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%dT%H:%M:%S%z")
    handler.setFormatter(line_formatter(line))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def _open(address: str, private: Path) -> None:
    """Open an address in the browser.

    All users of a machine see the arguments of its processes: the browser gets the key in a file.

    Args:
        address: the address, with its key.
        private: directory of this user alone.
    """
    page = private / "watch.html"
    page.write_text(f'<meta http-equiv="refresh" content="0;url={address}">', encoding="utf-8")
    # A browser in the terminal would occupy this thread until it ends.
    Thread(target=webbrowser.open, args=(page.as_uri(),), daemon=True).start()
