"""The shapes in which chat programs take messages: incoming webhooks of Slack and of Teams."""

from __future__ import annotations

from typing import Any, Literal

from vinedresser.rules.actions.message import headline

__all__ = ["PayloadFormat", "payload"]

PayloadFormat = Literal["json", "slack", "teams"]

# Characters that Slack takes in a block are 3,000; a card of Teams may have 28 KB in all.
_MOST = 2800
_FACT = 900
# As Slack's reference on formatting asks for, in this order; otherwise "<!channel>" calls everyone.
_ESCAPES = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"))


def payload(content: dict[str, Any], shape: PayloadFormat) -> dict[str, Any]:
    """Return a document in the shape that a receiver takes.

    Texts of a run are not interpreted as markup.

    Args:
        content: a document with ``text`` and ``facts``; see `message.document`.
        shape: "json" for the document as it is; "slack" for a message of blocks; "teams" for a
            message with an adaptive card, as webhooks of Microsoft's workflows take it.
    """
    if shape == "json":
        return content
    title = _cut(headline(content), _FACT)
    facts = {key: _cut(str(fact), _FACT) for key, fact in content["facts"].items() if fact}
    return _slack(title, facts) if shape == "slack" else _teams(title, facts)


def _slack(title: str, facts: dict[str, str]) -> dict[str, Any]:
    text = title
    for sign, escape in _ESCAPES:
        text = text.replace(sign, escape)
    details = "\n".join(f"{key}: {fact}" for key, fact in facts.items())
    blocks = [
        {"type": "section", "text": {"type": "plain_text", "text": one, "emoji": False}}
        for one in (title, _cut(details, _MOST))
        if one
    ]
    return {"text": text, "blocks": blocks}


def _teams(title: str, facts: dict[str, str]) -> dict[str, Any]:
    # Unlike other elements, runs of text are shown without a look for Markdown.
    first = {"type": "TextRun", "text": title, "weight": "Bolder", "size": "Medium"}
    lines: list[list[dict[str, Any]]] = [[first]]
    for key, fact in facts.items():
        heading = {"type": "TextRun", "text": f"{key}: ", "weight": "Bolder"}
        lines.append([heading, {"type": "TextRun", "text": fact}])
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [{"type": "RichTextBlock", "inlines": line} for line in lines],
    }
    kind = "application/vnd.microsoft.card.adaptive"
    attachment = {"contentType": kind, "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [attachment]}


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
