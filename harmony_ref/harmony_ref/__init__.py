"""An independent implementation of the Harmony response format of the gpt-oss models."""
