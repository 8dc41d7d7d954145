"""The hooks of mitmproxy, and mitmproxy run in this process."""
