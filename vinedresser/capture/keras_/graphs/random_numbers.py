"""Detection of random operations whose numbers differ in a second function."""

from __future__ import annotations

from typing import Any

__all__ = ["stateful_random_error"]

# Operations with an internal random state, separate in each function. keras.random and
# tf.random.Generator keep the state in variables, which functions share.
_STATEFUL = frozenset(
    {
        "Multinomial",
        "ParameterizedTruncatedNormal",
        "RandomGamma",
        "RandomPoisson",
        "RandomPoissonV2",
        "RandomShuffle",
        "RandomStandardNormal",
        "RandomUniform",
        "RandomUniformInt",
        "TruncatedNormal",
    }
)


def stateful_random_error(graph: Any) -> str:
    """Return why a second function would draw different random numbers; "" if it would not.

    Args:
        graph: graph of the traced function.
    """
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    found = sorted({node.op for node in nodes} & _STATEFUL)
    if not found:
        return ""
    return (
        f"the step draws random numbers by {', '.join(found)}, which keep a separate state in each "
        "compiled function, so a second function would change the training; use keras.random or "
        "tf.random.Generator instead of tf.random.*"
    )
