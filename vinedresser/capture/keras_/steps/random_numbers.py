"""Random numbers that a second function of a model would change."""

from __future__ import annotations

from typing import Any

__all__ = ["random_complaint"]

# Operations that keep the state of their random numbers in themselves, one state in each function.
# Those of keras.random and of tf.random.Generator keep it in variables, which functions share.
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


def random_complaint(graph: Any) -> str:
    """Return why a step would draw other random numbers in a second function; "": it would not.

    Args:
        graph: of the function that was traced.
    """
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    found = sorted({node.op for node in nodes} & _STATEFUL)
    if not found:
        return ""
    return (
        f"the step draws random numbers by {', '.join(found)}, whose state belongs to one compiled "
        "function, so that a second one would change the training; use keras.random or "
        "tf.random.Generator in place of tf.random.*"
    )
