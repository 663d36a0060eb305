"""`vinedresser.plot_answers`: the answers of several runs in one picture."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import vinedresser
from vinedresser.errors import ConfigError
from vinedresser.explain.charts.plot import Plot
from vinedresser.queries.stored.saving import saved
from vinedresser.store.reading.reader import Run
from vinedresser.testing.runs import make_run, step_record


def run(place: Path, scale: float) -> Run:
    layers = ("conv1.weight", "fc.weight")
    return make_run(
        place,
        [
            step_record(
                step,
                tensors={f"gradients/{layer}": np.full(4, scale * step) for layer in layers},
                scalars={"losses/train": scale / (1 + step)},
            )
            for step in range(20)
        ],
    )


def lines(plot: Plot) -> list[list[str]]:
    """Return the names of the lines of each chart."""
    picture = ET.fromstring(plot._repr_svg_())
    charts = [one for one in picture.iter() if one.get("class") == "chart"]
    titles = [
        [title.text or "" for title in chart.iter() if title.tag.endswith("title")]
        for chart in charts
    ]
    return [[title.partition(":")[0] for title in each] for each in titles]


def test_a_live_and_three_stored_streams_are_lines_of_one_chart(tmp_path: Path) -> None:
    sources = {}
    for number in range(3):
        yesterday = run(tmp_path / f"yesterday-{number}", 1.0 + number)
        list(saved(vinedresser.ask(yesterday, "norm(gradients) by layer"), yesterday, "norms"))
        sources[f"yesterday {number}"] = vinedresser.streams(yesterday)["norms"]
    today = run(tmp_path / "today", 5.0)
    live = vinedresser.ask(today, "norm(gradients) by layer")
    plot = vinedresser.plot_answers({"today": live, **sources})
    assert plot.title == "norm(gradients) by layer"
    assert [panel.caption for panel in plot.panels] == ["conv1", "fc"]
    assert lines(plot) == [["today", "yesterday 0", "yesterday 1", "yesterday 2"]] * 2
    plot.save(tmp_path / "norms.html")
    assert "yesterday 2" in (tmp_path / "norms.html").read_text("utf-8")


def test_values_that_are_not_finite_are_marked(tmp_path: Path) -> None:
    made = make_run(
        tmp_path / "run",
        [step_record(s, scalars={"losses/a": np.nan if s == 3 else s}) for s in range(6)],
    )
    picture = vinedresser.plot_answers({"a<b": vinedresser.ask(made, "loss")})._repr_svg_()
    assert 'class="nonfinite"' in picture
    assert "a&lt;b" in picture
    ET.fromstring(picture)


def test_what_has_no_numbers_by_step_is_refused(tmp_path: Path) -> None:
    made = run(tmp_path / "run", 1.0)
    with pytest.raises(ConfigError, match="no answers that are numbers by step"):
        vinedresser.plot_answers({"none": []})
    with pytest.raises(ConfigError, match="there are histogram"):
        vinedresser.plot_answers({"a": vinedresser.ask(made, "histogram(gradients)")})
