"""The command line: arguments in, one call into the layers below, errors as one line.

Nothing heavy is imported at the top of its modules: `vinedresser --help` must answer at once.
"""

from __future__ import annotations

from vinedresser.cli.application import app, main

__all__ = ["app", "main"]
