"""Text to tokens and back: the vocabulary, special tokens, limits of tiktoken."""
