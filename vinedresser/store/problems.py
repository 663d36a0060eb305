"""Problems of a run, each reported once."""

from __future__ import annotations

from vinedresser.plain_logs import plain_logger
from vinedresser.plain_text import visible

_logger = plain_logger(__name__)


class Problems:
    """Collects sentences about problems of a run; each is logged once.

    Attributes:
        sentences: the sentences, in the order in which they were added.
    """

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def note(self, sentence: str) -> None:
        """Add a sentence unless it is known; control characters of names become visible."""
        sentence = visible(sentence)
        if sentence not in self.sentences:
            self.sentences.append(sentence)
            _logger.warning("%s", sentence)
