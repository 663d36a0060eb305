"""The text of a query is split, checked and refused as documented."""

from __future__ import annotations

import pytest

from vinedresser.errors import ConfigError
from vinedresser.queries.every import Every
from vinedresser.queries.query import Query


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("loss", {"loss"}),
        ("loss / lr", {"loss", "lr"}),
        ("mean(abs(outputs/relu))", {"outputs/relu"}),
        ("norm(gradients/conv1.weight) / norm(weights/conv1.weight)",
         {"gradients/conv1.weight", "weights/conv1.weight"}),
        ("share(outputs/relu* == 0)", {"outputs/relu*"}),
        ("mean(outputs/block1.relu()) - mean(outputs/lstm[0])",
         {"outputs/block1.relu()", "outputs/lstm[0]"}),
        ("top(loss per sample, 5)", {"loss_per_sample"}),
        ("max(`saved/a name (odd)`)", {"saved/a name (odd)"}),
        ("`metrics/top 5` + `größe`", {"metrics/top 5", "größe"}),
        ("loss > 1 and where(lr, 1, 0)", {"loss", "lr"}),
        ("mean(loss_per_sample) by class", {"loss_per_sample", "labels"}),
        ("norm(gradients) where loss > 2", {"gradients", "loss"}),
    ],
)  # fmt: skip
def test_names_have_slashes_and_a_division_has_spaces(text: str, needs: set[str]) -> None:
    query = Query.parse(text)
    assert query.needs == needs
    assert Query.parse(query.normalised).needs == needs


def test_clauses_come_in_any_order_and_say_the_same() -> None:
    one = Query.parse("norm(gradients) by layer where loss<2 reduce quantile(0.9) every 30 seconds")
    other = Query.parse("norm( (gradients) ) reduce quantile(.9) by layer where loss < 2",
                        every="30 seconds")  # fmt: skip
    assert one.normalised == other.normalised
    assert (one.by, one.every) == ("layer", Every("seconds", 30))
    assert str(one.reduce) == "quantile(0.9)"
    assert Query.parse(one.normalised).normalised == one.normalised


def test_where_is_a_function_inside_an_expression_and_a_clause_behind_it() -> None:
    query = Query.parse("mean(where(gradients > 0, gradients, 0)) where (loss > 1) and not lr == 0")
    assert query.where is not None
    assert query.needs == {"gradients", "loss", "lr"}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("step", Every("steps", 1)),
        ("100 steps", Every("steps", 100)),
        ("0.5 seconds", Every("seconds", 0.5)),
        ("epoch", Every("epoch")),
        ("evaluation", Every("evaluation")),
        ("flush", Every("flush")),
        ("rollout-ended", Every("event", event="rollout-ended")),
    ],
)
def test_every_is_read_and_written(text: str, kind: Every) -> None:
    assert Every.parse(text) == kind
    assert Every.parse(str(kind)) == kind
    assert Query.parse(f"loss every {text}").every == kind


@pytest.mark.parametrize(
    "text", ["", "0 steps", "1.5 steps", "-1 steps", "0 seconds", "100", "a b"]
)
def test_other_windows_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="every = "):
        Every.parse(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no expression"),
        ("norm(gradients", "norm"),
        ("norm(gradients) by", "nothing follows 'by'"),
        ("norm(gradients) by layers", "did you mean layer"),
        ("loss every step every epoch", "twice"),
        ("loss reduce lr + 1", "reduce takes a fold"),
        ("lambda: 1", "not part of the language"),
        ("loss.item()", "unexpected '.'"),
        ("loss ** lr", "exponent"),
        ("2 ** 900", "exponent"),
        ("9" * 30, "digits"),
        ("`__import__('os')`", "no name of a value"),
        ("norm(`gradients.__class__`)", "no name of a value"),
        ("`a/`", "no name of a value"),
        ("`/a`", "no name of a value"),
        ("`metrics/a\u202eb`", r"no name of a value"),
        ("loss `and` lr", "no name of a value"),
        ("__builtins__", "not part of the language"),
        ("`norm`(loss)", "is a name, not a function"),
        ("outputs/relu(loss)", "is a name, not a function"),
        ("loss by `layer`", "cannot group by '`layer`'"),
        ("loss reduce `max`", "reduce takes a fold"),
        ("loss every `epoch`", "every takes a window"),
        ("`loss` `per` `sample`", "not an expression"),
        ("-".join(["1"] * 300), "more than 200"),
        ("loss + " * 400 + "1", "at most 2,000"),
        ("(" * 900 + "1" + ")" * 900, "not an expression"),
    ],
)
def test_bad_texts_are_refused_with_a_reason(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says.replace("*", r"\*")):
        Query.parse(text)


def test_a_text_says_every_only_once() -> None:
    with pytest.raises(ConfigError, match="says every itself"):
        Query.parse("loss every step", every="epoch")
