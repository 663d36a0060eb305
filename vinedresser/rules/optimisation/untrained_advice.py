"""Causes and remedies of parameters that are not trained."""

from __future__ import annotations

from vinedresser.rules.advice import Advice
from vinedresser.rules.signals.parameters.parameter_states import Trouble

__all__ = ["ADVICE", "FORGETFUL", "LOST", "RANDOM"]

ADVICE: dict[Trouble, Advice] = {
    "elsewhere": Advice(
        "no gradient reaches any parameter of the optimizer: loss.backward() is not called, the "
        "loss is detached from all of them, or the optimizer has the parameters of another model",
        "call loss.backward() before optimizer.step(), and create the optimizer with the "
        "parameters of the model that computes the loss: Adam(model.parameters(), …)",
    ),
    "left_out": Advice(
        "no optimizer has them",
        "pass them to the optimizer: Adam(model.parameters(), …), created after all layers; or "
        "freeze them: parameter.requires_grad_(False)",
    ),
    "cut_off": Advice(
        "no gradient reaches them: the graph is cut after them (detach(), torch.no_grad(), "
        ".data, a conversion to numpy), or the loss does not depend on them",
        "remove the detach() or no_grad() between them and the loss, or freeze them: "
        "parameter.requires_grad_(False)",
    ),
    "zero": Advice(
        "the loss does not depend on them: the graph is cut after them (detach()), or a factor of "
        "0 (a weight of a term, a mask) removes their part of it",
        "remove the detach() or the factor of 0 between them and the loss, or freeze them: "
        "parameter.requires_grad_(False)",
    ),
    "unmoved": Advice(
        "the learning rate of their parameter group is 0, or their updates are too small for the "
        "precision of the weights",
        "set the learning rate of their parameter group to that of the others, or keep them in "
        "float32",
    ),
    "frozen": Advice(
        "they are frozen (requires_grad=False), but still have their random initial values, which "
        "were never trained",
        "load their trained weights before freezing them, or train them: "
        "parameter.requires_grad_(True), before the optimizer is created",
    ),
}
"""By trouble of the parameters."""

LOST: dict[Trouble, Advice] = {
    "left_out": Advice(
        "they were replaced in mid-run, by new layers or a cast to another type, and the optimizer "
        "still has the old ones",
        "create the optimizer after all changes of the model, or change its parameters in place",
    ),
    "cut_off": Advice(
        "they were frozen (requires_grad=False) or cut off in mid-run, although layers before and "
        "after them are still trained",
        "freeze only what is meant: parameter.requires_grad_(True) for the others",
    ),
}
"""Of parameters that were trained before."""

FORGETFUL = Advice(
    "each call of the recurrent layer sees one step of a sequence and begins with a state of zero: "
    "the state is not passed on from step to step, or sequences were flattened into rows",
    "pass the whole sequence [batch, time, features] to the layer, or the state that it returned "
    "at the step before",
)
"""Of recurrent weights that are without use."""

RANDOM = ", and they still have their random initial values"
"""Added to the cause of parameters that were never trained."""
