"""Text Generation Inference: raw continuation with token details, and its Messages API (TGI 3.3.7, router/src)."""
