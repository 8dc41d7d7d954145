"""Scripted model and the parser of its output."""
