"""What is wrong with a run, told once."""

from __future__ import annotations

import logging

__all__ = ["Problems"]

_logger = logging.getLogger(__name__)


class Problems:
    """Sentences about what is wrong with a run; each is logged when it is first noted.

    Attributes:
        sentences: in the order in which they were noted.
    """

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def note(self, sentence: str) -> None:
        """Note a sentence, once."""
        if sentence not in self.sentences:
            self.sentences.append(sentence)
            _logger.warning("%s", sentence)
