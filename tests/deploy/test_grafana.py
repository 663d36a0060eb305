"""The dashboard asks for metrics and labels that `vinedresser watch` has."""

from __future__ import annotations

import json
import re

from prometheus_client.parser import text_string_to_metric_families

from tests.paths import ROOT
from vinedresser.watching.metrics import metrics_text


def test_the_dashboard_shows_every_metric() -> None:
    found = {"rule": "nonfinite", "severity": "stop"}
    row = {"state": "stopped", "rule": "nonfinite", "findings": [found], "steps": 1, "seconds": 1.0}
    labels = {
        family.name: {label for sample in family.samples for label in sample.labels}
        for family in text_string_to_metric_families(metrics_text([row], ""))
    }
    dashboard = json.loads((ROOT / "deploy/grafana.json").read_text(encoding="utf-8"))
    shown = set()
    for panel in dashboard["panels"]:
        [target] = panel["targets"]
        [name] = re.findall(r"vinedresser_\w+", target["expr"])
        shown.add(name)
        asked = {*re.findall(r"(\w+)=", target["expr"])} - {"job"}
        asked |= {*re.findall(r"{{(\w+)}}", target["legendFormat"])}
        assert asked <= labels[name], panel["title"]
    assert shown == {*labels}
