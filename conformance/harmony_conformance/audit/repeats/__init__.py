"""Exchanges of a log that differ from earlier ones in plain texts and counts alone: their outcomes are counted without judging them again."""
