"""Repair of complete answers."""
