"""Native API of Ollama: newline-delimited JSON, `thinking`, arguments as objects (Ollama docs/api.md, api/types.go)."""
