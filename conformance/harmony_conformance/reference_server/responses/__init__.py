"""Responses API: input items, output items and their events (OpenAI API reference, Responses)."""
