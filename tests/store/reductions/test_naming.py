"""The grammar of reductions."""

from __future__ import annotations

import re

import pytest

from tests.paths import ROOT
from vinedresser.capture import SaveConfig
from vinedresser.errors import ConfigError
from vinedresser.store.reductions import (
    REDUCTIONS,
    base_name,
    derived_name,
    parse_reduction,
    plan_reductions,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("l2", (False, False, "l2", 0, "l2")),
        ("abs_l2", (False, True, "l2", 0, "l2")),
        ("abs_sum", (False, True, "sum", 0, "l1")),
        ("abs_mean", (False, True, "mean", 0, "abs_mean")),
        ("channel_abs_std", (True, True, "std", 0, "abs_std")),
        ("p5", (False, False, "quantile", 0.05, "p5")),
        ("abs_p99.9", (False, True, "quantile", 0.999, "abs_p99.9")),
        ("p0", (False, False, "quantile", 0.0, "p0")),
        ("channel_p100", (True, False, "quantile", 1.0, "p100")),
        ("abs_histogram", (False, True, "histogram", 0, "abs_histogram")),
    ],
)
def test_a_reduction_is_parsed(text: str, expected: tuple[object, ...]) -> None:
    word = parse_reduction(text)
    share = pytest.approx(word.share)
    assert (word.channel, word.absolute, word.statistic, share, word.canonical) == expected
    assert word.text == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("l3", "unknown reduction 'l3'; a reduction is"),
        ("zeroshare", "unknown reduction 'zeroshare'; did you mean zero_share"),
        ("median", "unknown reduction 'median'; did you mean mean"),
        ("abs_channel_max", "did you mean channel_abs_max"),
        ("quantile", "a reduction is [channel_][abs_] and one of min, max"),
        ("p", "or a quantile such as p99.9"),
        ("p05", "'p05': write p5"),
        ("channel_abs_p5.0", "write channel_abs_p5"),
        ("p.5", "write p0.5"),
        ("p100.1", "percentiles are p0, or from p0.0001 to p100"),
        ("p0.00001", "percentiles are p0, or from p0.0001 to p100"),
        ("p1.2.3", "1.2.3 is not a number"),
        ("p-1", "unknown reduction 'p-1'"),
        ("", "unknown reduction ''"),
        (["l2"], "unknown reduction ['l2']"),
    ],
)
def test_an_unknown_reduction_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        SaveConfig(reductions=("l1", text))


def test_reductions_are_grouped_by_computation() -> None:
    words = ["l2", "channel_l2", "p50", "channel_histogram", "histogram", "abs_sum"]
    wanted = plan_reductions(frozenset(words))
    assert [word.text for word in wanted.elementwise] == ["abs_sum", "l2"]
    assert wanted.elementwise_names == ("l1", "l2")
    assert [word.text for word in wanted.channels] == ["channel_l2"]
    assert [word.text for word in wanted.sampled] == ["histogram", "p50"]
    assert [word.text for word in wanted.channels_sampled] == ["channel_histogram"]
    assert wanted.late == {"channel_l2", "p50", "channel_histogram", "histogram"}
    assert not plan_reductions(frozenset(REDUCTIONS)).late


def test_only_vector_reductions_have_a_derived_name() -> None:
    assert derived_name("gradients/a.weight", "channel_l2") == "gradients/a.weight|channel_l2"
    assert base_name("gradients/a.weight|channel_l2") == "gradients/a.weight"
    assert base_name("gradients/a|b|abs_histogram") == "gradients/a|b"
    for plain in ("gradients/a.weight", "gradients/a|b", "gradients/a|l2", "gradients/a|p50"):
        assert base_name(plain) is None


def test_the_document_lists_every_reduction() -> None:
    document = ROOT.joinpath("docs/reductions.md").read_text(encoding="utf-8")
    table = document.partition("| statistic |")[2].partition("\n\n")[0]
    first = [row.split("|")[1] for row in table.splitlines()[2:]]
    words = [word for cell in first for word in re.findall(r"`([^`]+)`", cell)]
    alone = ["fingerprint", "unit_similarity"]
    assert sorted(words) == sorted([*REDUCTIONS, "p<percent>", "histogram", *alone])
    for word in re.findall(r"`((?:channel_|abs_)*[a-z]+[0-9]*)`", document):
        if word.startswith(("channel_", "abs_")) and not word.endswith("_"):
            parse_reduction(word)
