"""Trainings of many kinds, healthy and faulty, each verified by its outcome; see README.md."""
