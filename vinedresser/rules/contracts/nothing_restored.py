"""Rule: a state that is loaded into the trained model changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vinedresser.rules.applicability import Reasons
from vinedresser.rules.contracts.contract import Contract

_TORCH = "only load_state_dict of PyTorch is observed"


class NothingRestored(Contract):
    """A state that is loaded into the trained model is its weights themselves, so nothing changes.

    `state_dict` returns the weights themselves, which the training continues to change. Fires if
    such a state is loaded without having been copied, after training since `state_dict` was last
    called: the best weights, for instance, are not restored. Does not fire if anything but the
    optimizer has written into the weights in between, as an average of several models does.
    """

    fault = "nothing_restored"
    position = 253
    inapplicable = Reasons(keras=_TORCH, xgboost=_TORCH, sklearn=_TORCH)
    remedy = "keep copy.deepcopy(model.state_dict()), or save the state to a file and load that"

    def describe(self, breach: Mapping[str, Any]) -> tuple[float, str, str]:
        """See `Contract.describe`."""
        seen = (
            f"after {breach['step']} steps, a state was loaded whose {breach['tensors']} tensors "
            "are the model's own: nothing was restored, although the model was trained since "
            "state_dict() was last called"
        )
        cause = "the state was kept without a copy, so training has changed it, too"
        return float(breach["tensors"]), seen, cause
