"""Tables of the terminal: a line of a file or pipe is whole."""

from __future__ import annotations

import pytest

from vinedresser.cli.views.column_choice import fitted_table
from vinedresser.cli.views.console import console, line_room, print_table


def test_a_pipe_gets_whole_lines_and_a_terminal_what_fits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"run": "digits-" + "x" * 90, "verdict": "a sentence of several words " * 5}

    def printed() -> list[str]:
        made = fitted_table(
            {name: name for name in row},
            [row],
            room=line_room(),
            dropped=(),
            folded={"run": 20, "verdict": 20},
            figures=(),
        )
        print_table(made)
        return capsys.readouterr().out.splitlines()

    monkeypatch.delenv("COLUMNS")
    assert len(printed()) == 2
    assert row["run"] in printed()[1]
    assert row["verdict"].strip() in printed()[1]
    monkeypatch.setenv("COLUMNS", "60")
    # It was read when the console was made.
    monkeypatch.setattr(console, "width", 60)
    assert len(printed()) > 2
    assert max(map(len, printed())) <= 60
