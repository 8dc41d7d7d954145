"""The live page: what the guard does at this moment, without content."""
