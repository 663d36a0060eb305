"""What a terminal and a notebook show for runs, findings and tensors."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from vinedresser.capture import Hook, SaveConfig
from vinedresser.errors import UnknownTensor
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.records import findings_key
from vinedresser.testing.runs import make_run, step_record

FINDING = Finding(
    *("nonfinite", "warning", 1, 1, "train", 0, "losses/x", "loss", 1.0, 0.0, 1.0),
    *("losses/x is <b>infinite</b>\x1b[2J", "", "lower the learning rate"),
)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    values = np.repeat(np.array([-1.0, 0.5, 1.0]), [1, 2, 4])
    records = [
        step_record(0, tensors={"weights/w": values}, reductions={"weights/w": {"l2": 2.0}}),
        step_record(1, reductions={"gradients/w": {"l2": 0.25}}, scalars={"losses/x": 1.0}),
    ]
    opened = make_run(tmp_path / "run", records)
    file = tmp_path / "run" / findings_key("main")
    file.parent.mkdir()
    file.write_text(json.dumps(asdict(FINDING)) + "\n")
    return opened


def test_a_run_says_how_it_ended(run: Run) -> None:
    assert repr(run) == f"Run({run.path!r}, finished, 2 steps)"
    shutil.rmtree(run.path)
    assert repr(run) == f"Run({run.path!r}, removed, 2 steps)"


def test_a_notebook_shows_a_run_with_its_findings(run: Run) -> None:
    shown = run._repr_html_()
    assert "<p>made: finished</p>" in shown
    assert "losses/x is &lt;b&gt;infinite" in shown
    assert "<td>lower the learning rate</td>" in shown
    assert "\x1b" not in shown


def test_findings_are_a_list_and_a_table(run: Run) -> None:
    findings = run.findings()
    assert findings == [FINDING]
    assert repr(findings) == (
        r"[Finding(nonfinite, warning at step 1: losses/x is <b>infinite</b>\x1b[2J)]"
    )
    assert findings._repr_html_().count("<tr>") == 2


def test_a_tensor_shows_its_histogram(run: Run) -> None:
    view = run.tensor("weights/w")
    assert repr(view) == "TensorView(weights/w: float64 [7], 1 step, l2)"
    shown = view._repr_html_()
    histogram = shown.partition("<pre>train step 0: ")[2].partition("</pre>")[0]
    # 64 bins from -1 to 1: one element in the first, two in bin 48, four in the last.
    bars = [" "] * 64
    bars[0], bars[48], bars[63] = "▂", "▄", "█"
    assert histogram == f"-1 {''.join(bars)} 1"
    assert "<td>l2</td><td>1</td><td>0</td><td>2</td>" in shown


def test_a_tensor_without_values_shows_its_statistics(run: Run) -> None:
    view = run.tensor("gradients/w")
    assert repr(view) == "TensorView(gradients/w: l2)"
    assert "<pre>" not in view._repr_html_()


def test_names_are_completed(run: Run) -> None:
    assert run.scalars()._ipython_key_completions_() == ["losses/x"]


def test_vector_statistics_are_named_and_say_how_they_are_read(tmp_path: Path) -> None:
    saved = SaveConfig(every=1, reductions=("l2", "histogram", "channel_abs_mean"))
    with Hook(tmp_path / "run", collections={"saved": saved}) as hook:
        hook.save("z", np.ones((3, 2)))
        hook.step()
    view = open_run(tmp_path / "run").tensor("saved/z")
    assert repr(view) == "TensorView(saved/z: l2, channel_abs_mean, histogram)"
    with pytest.raises(UnknownTensor, match=r"read it with \.histogram\(step=\.\.\.\)"):
        view.reduction("histogram")
    with pytest.raises(UnknownTensor, match=r'read it with \.channels\("abs_mean", step='):
        view.reduction("channel_abs_mean")
    assert view.histogram(step=0).counts.sum() == 6
