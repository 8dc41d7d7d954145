"""Family `native`: guarantees of Ollama's, TGI's and SGLang's own APIs: lines, endings, counts, tokens, parsers."""

from __future__ import annotations

from harmony_conformance.checks.native import ollama, refusals, sglang, tgi

MODULES = (ollama, refusals, sglang, tgi)
