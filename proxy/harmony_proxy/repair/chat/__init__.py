"""Repair of streams whose chunks hold choices: Chat Completions, TGI, Ollama."""
