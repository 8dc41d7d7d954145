"""`HarmonyGuard`, the proxy as ASGI middleware."""

from harmony_proxy.asgi.guard import HarmonyGuard

__all__ = ["HarmonyGuard"]
