"""A monitor: windows of requests, their verdicts, alerts, and the explanations of these."""
