from asyncio import Task
from collections.abc import MutableMapping

from mitmproxy.connection import Connection

class ConnectionIO:
    handler: Task[None] | None

class ConnectionHandler:
    transports: MutableMapping[Connection, ConnectionIO]
