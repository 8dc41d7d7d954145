"""Repair of Responses streams."""
