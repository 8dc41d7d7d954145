"""Chat templates and response schemas as transformers evaluates them."""
