"""The command line in a subprocess."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["vinedresser"]


def vinedresser(*arguments: str, cwd: Path, columns: int = 160) -> subprocess.CompletedProcess[str]:
    """Run a command in a terminal of some columns and return the completed process."""
    return subprocess.run(
        [sys.executable, "-m", "vinedresser", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": str(columns)},
        timeout=240,
    )
