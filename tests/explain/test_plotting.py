"""`vinedresser.plot`: charts of a run for notebooks and files."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import vinedresser
from vinedresser.errors import ConfigError, UnknownTensor
from vinedresser.store.reading.reader import Run
from vinedresser.testing.runs import make_run, step_record


@pytest.fixture
def run(tmp_path: Path) -> Run:
    records = [
        step_record(
            step,
            tensors={"weights/w": np.arange(4.0)},
            scalars={"losses/one": 1 / (1 + step), "losses/two": 2.0, "metrics/accuracy": 0.5},
            reductions={
                "gradients/w": {"l2": 0.1 * step},
                "weights/w": {"l2": 1.0},
                "updates/w": {"l2": 0.01},
                "activations/relu": {"zero_share": 0.5, "std": 1.0},
            },
        )
        for step in range(8)
    ]
    return make_run(tmp_path / "run", records)


@pytest.mark.parametrize(
    ("what", "charts"),
    [
        ("losses", ["losses/one", "losses/two"]),
        ("metrics", ["metrics/accuracy"]),
        ("gradients", ["Euclidean norm of the gradients by layer"]),
        ("updates", ["|update| / |weight|"]),
        ("activations", ["share of zeros", "standard deviation"]),
        ("losses/two", [""]),
        ("weights/w", [""]),
    ],
)
def test_each_subject_has_its_charts(run: Run, what: str, charts: list[str]) -> None:
    plot = vinedresser.plot(run, what)
    assert [panel.caption for panel in plot.panels] == charts
    picture = ET.fromstring(plot._repr_svg_())
    drawn = [one for one in picture.iter() if one.get("class", "").startswith("chart")]
    assert len(drawn) == len(charts)
    # The charts are within the picture, one below the other.
    tops = [float(one.get("y", "0")) for one in picture if one.tag.endswith("svg")]
    assert tops == sorted(set(tops))
    assert tops[-1] + plot.panels[-1].height <= float(picture.get("height", "0"))


def test_a_plot_is_saved(run: Run, tmp_path: Path) -> None:
    plot = vinedresser.plot(run.path)
    assert repr(plot) == "Plot('made · losses', 2 charts)"
    plot.save(tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").read_text(encoding="utf-8") == f"{plot._repr_svg_()}\n"
    plot.save(tmp_path / "plot.html")
    assert plot._repr_svg_() in (tmp_path / "plot.html").read_text(encoding="utf-8")
    with pytest.raises(ConfigError, match=r"plot\.png: unknown format of charts; use \.svg"):
        plot.save(tmp_path / "plot.png")


def test_what_cannot_be_drawn_is_named(run: Run, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gradiens: no such plot; did you mean gradients"):
        vinedresser.plot(run, "gradiens")
    with pytest.raises(ConfigError, match="nothing: no such plot; use losses, metrics"):
        vinedresser.plot(run, "nothing")
    with pytest.raises(UnknownTensor, match="no tensor or scalar weights/v; did you mean"):
        vinedresser.plot(run, "weights/v")
    empty = make_run(tmp_path / "empty", [])
    for what in ("losses", "metrics", "gradients", "updates", "activations"):
        with pytest.raises(ConfigError, match=f"no {what} were captured"):
            vinedresser.plot(empty, what)
