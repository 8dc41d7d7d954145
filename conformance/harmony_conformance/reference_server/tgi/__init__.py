"""Text Generation Inference: raw continuation with every token shown, and its Messages API (TGI 3.3.7, router/src)."""
