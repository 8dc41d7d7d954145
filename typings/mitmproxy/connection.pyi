class Connection: ...

class Server(Connection):
    timestamp_tcp_setup: float | None
