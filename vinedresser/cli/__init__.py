"""The command line: each command parses its arguments and calls the layers below.

The modules import nothing heavy at the top, so that `vinedresser --help` answers at once.
"""

from __future__ import annotations

import signal
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; see `vinedresser.cli.application`.

    Ctrl-C ends it with exit code 130 and without a traceback, also while modules are imported.
    """
    try:
        from vinedresser.cli.application import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
