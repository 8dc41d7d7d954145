"""The scripted model, and the parser of its output."""
