"""Chat Completions: the response and its choices."""
