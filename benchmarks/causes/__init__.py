"""How well causes are named."""
