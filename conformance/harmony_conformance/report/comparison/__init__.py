"""Runs compared with another run, with a baseline, and side by side."""
