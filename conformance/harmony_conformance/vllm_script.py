"""The public import path of the vLLM logits processor (`--logits-processors harmony_conformance.vllm_script:ScriptedLogits`)."""

from harmony_conformance.engines.vllm_logits_processor import ScriptedLogits

__all__ = ["ScriptedLogits"]
