"""The command line: each command parses its arguments and calls the layers below.

The modules import nothing heavy at the top, so that `vinedresser --help` answers at once.
"""

from __future__ import annotations

from vinedresser.cli.application import app, main

__all__ = ["app", "main"]
