"""Ollama's own API: newline-delimited JSON, `thinking`, arguments as objects (docs/api.md and api/types.go of Ollama)."""
