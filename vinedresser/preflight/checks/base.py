"""What a check reads."""

from __future__ import annotations

from dataclasses import dataclass

from vinedresser.preflight.observed import Observed
from vinedresser.preflight.trials import Trials
from vinedresser.rules.signals.outcomes.guessing import loss_of_constants


@dataclass(frozen=True)
class Evidence:
    """What a check reads.

    Attributes:
        seen: the first steps of the training.
        trials: runs of copies of it.
        seconds: CPU seconds for all checks together.
    """

    seen: Observed
    trials: Trials
    seconds: float

    def loss_of_constants(self) -> float | None:
        """Return the least loss on the first batch of outputs that ignore the inputs.

        None if it is not known.

        Raises:
            NotRepeatable: the first step cannot be run again.
        """
        function = self.trials.first.function
        return None if function is None else loss_of_constants(*function)
