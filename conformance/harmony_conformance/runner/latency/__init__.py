"""Latency: its probe, and the percentiles with their intervals."""
