"""Explanations of drift alerts: what the model sees in the requests, beside the baseline."""
