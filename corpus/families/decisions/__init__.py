"""Families that decide: reinforcement learning, effects of treatments, agents that communicate."""
