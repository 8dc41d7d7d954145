from mitmproxy.connection import Server

class Error:
    msg: str

class Flow:
    id: str
    server_conn: Server
    @property
    def killable(self) -> bool: ...
    def kill(self) -> None: ...
