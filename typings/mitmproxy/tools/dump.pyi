from asyncio import AbstractEventLoop

from mitmproxy.master import Master
from mitmproxy.options import Options

class DumpMaster(Master):
    def __init__(
        self,
        options: Options,
        loop: AbstractEventLoop | None = None,
        with_termlog: bool = True,
        with_dumper: bool = True,
    ) -> None: ...
