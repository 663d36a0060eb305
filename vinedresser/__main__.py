"""Run the command line with `python -m vinedresser`."""

from __future__ import annotations

from vinedresser.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
