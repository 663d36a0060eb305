"""docs/notebooks.md, executed as a notebook."""

from __future__ import annotations

import base64
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import vinedresser
from tests.paths import ROOT
from vinedresser.errors import ConfigError, MissingDependency

CELL = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def executed(folder: Path) -> list[list[dict[str, Any]]]:
    """Execute the cells of the document in a folder, and return the outputs of each."""
    # Here, so that the other tests of this folder need no notebook.
    import nbformat
    from nbclient import NotebookClient

    text = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(code) for code in CELL.findall(text)]
    )
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    client = NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute(env={**os.environ, "PATH": path})
    return [cell.outputs for cell in notebook.cells]


def shown(outputs: list[dict[str, Any]], kind: str) -> str:
    """Return what a cell shows in a format."""
    return "".join(output["data"].get(kind, "") for output in outputs if "data" in output)


@pytest.mark.slow
def test_the_document_works_as_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    _, judged, losses, gradients, compared, store, live = executed(tmp_path)
    assert "<td>learning_rate_too_high</td>" in shown(judged, "text/html")
    assert "losses/CrossEntropyLoss" in shown(losses, "image/svg+xml")
    assert "2.bias" in shown(gradients, "image/svg+xml")
    assert "lr" in compared[0]["text"]
    assert shown(store, "text/html").count("<td>finished</td>") == 2
    # One display, which has the state at the end.
    (display,) = [one for one in live if one["output_type"] == "display_data"]
    assert "finished" in display["data"]["text/html"]
    assert "300 steps" in display["data"]["text/plain"]
    html = display["data"]["text/html"]
    losses_drawn, asked = (
        base64.b64decode(one).decode()
        for one in re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', html)
    )
    assert "losses/" in losses_drawn
    [name] = [path.name for path in (tmp_path / "runs").iterdir() if path.name.endswith("-script")]
    *_, newest = vinedresser.ask(tmp_path / "runs" / name, "loss reduce max every 50 steps")
    assert newest.step == 299
    assert f'data-last="{newest.value!r}"' in asked
    assert "norm(gradiants): " in html
    assert "no such name" in html


def test_live_needs_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", None)
    with pytest.raises(MissingDependency, match="in a terminal, use `vinedresser show RUN`"):
        vinedresser.live(tmp_path)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"every": -1.0}, "every = -1: must be"),
        ({"start_timeout": float("nan")}, "start_timeout = nan: must be"),
    ],
)
def test_seconds_that_no_clock_understands_are_refused(
    tmp_path: Path, given: dict[str, float], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        vinedresser.live(tmp_path, **given)
