"""Inputs and outputs of models, described by named columns with one row per example."""
