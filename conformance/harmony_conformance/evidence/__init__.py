"""Exchanges and series: what crossed the wire, what is known about prompt and output, recordings."""
