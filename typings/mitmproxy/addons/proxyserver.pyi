from typing import Any

from mitmproxy.proxy.server import ConnectionHandler

class Proxyserver:
    connections: dict[tuple[Any, ...] | str, ConnectionHandler]
    def listen_addrs(self) -> list[tuple[str, int]]: ...
