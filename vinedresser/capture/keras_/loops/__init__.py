"""The loops that train or evaluate a model: `fit`, `evaluate`, `predict` and custom loops."""
