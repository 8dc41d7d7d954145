"""SGLang: raw continuation, the two parsers that it serves by themselves, and its tokenizer (SGLang 0.5.23, srt/entrypoints)."""
