"""Prompts: API requests as Harmony conversations, prompt token ids as messages, and token accounting."""
