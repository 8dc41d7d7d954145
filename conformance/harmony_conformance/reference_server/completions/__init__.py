"""Completions API: raw continuation of prompts that the client rendered (OpenAI API reference, Completions)."""
