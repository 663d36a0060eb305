"""What a saliency map shows, and how its terms are processed."""

from __future__ import annotations

from typing import Any, Literal, get_args

from vinedresser.errors import SaliencyError

__all__ = ["Method", "Peer", "Postprocess", "check_option"]

# Methods of Captum.
Peer = Literal["smoothgrad", "integrated_gradients", "grad_cam"]
Method = Literal["fullgrad", "simple_fullgrad", "gradient", "input_x_gradient", Peer]
Postprocess = Literal["rescale", "abs", "none"]


def check_option(name: str, value: object, options: Any) -> None:
    """Check the value of an argument.

    Args:
        options: a Literal of the valid values.

    Raises:
        SaliencyError: the value is not valid.
    """
    if value not in get_args(options):
        raise SaliencyError(f"{name}={value!r}: must be one of {', '.join(get_args(options))}")
