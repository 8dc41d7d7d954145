"""Judging in a separate process: queue, codec, counters, metrics, outcome log."""
