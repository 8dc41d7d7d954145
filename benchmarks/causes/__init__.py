"""Measurement of how well causes are named."""
