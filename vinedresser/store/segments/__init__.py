"""Segments: immutable safetensors files of captured tensors."""
