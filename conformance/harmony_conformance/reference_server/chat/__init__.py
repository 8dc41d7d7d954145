"""Chat completions and their candidates."""
