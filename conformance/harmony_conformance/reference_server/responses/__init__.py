"""The Responses API: items in, items out, and the events that tell of them (OpenAI API reference, Responses)."""
