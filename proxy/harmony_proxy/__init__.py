"""Middleware that judges live traffic between clients and gpt-oss servers, and repairs or blocks answers under a policy.

- `harmony_proxy.asgi.HarmonyGuard` is the ASGI middleware: `vllm serve MODEL --middleware harmony_proxy.asgi.HarmonyGuard`.
- `harmony_proxy.addon` is the script for `mitmdump -s`.
- `harmony-conformance proxy` is the standalone reverse proxy.
"""
