"""Completions to messages, whole and token by token."""
