"""Encoding and decoding of text: the vocabulary, special tokens, limits of tiktoken."""
