"""SGLang: raw continuation, parser endpoints, and tokenizer (SGLang 0.5.23, srt/entrypoints)."""
