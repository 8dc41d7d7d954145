"""The standalone proxy with the guard taken out, served as it is: `unguarded.py UPSTREAM PORT`."""

import asyncio
import gc
import sys

import uvicorn
import uvloop

from harmony_proxy.standalone.server import config, create_listening_socket
from harmony_proxy.standalone.upstream import Upstream

if __name__ == "__main__":
    with (
        create_listening_socket("127.0.0.1", int(sys.argv[2])) as listening,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        gc.collect()
        gc.freeze()
        runner.run(uvicorn.Server(config(Upstream(sys.argv[1]), 1)).serve(sockets=[listening]))
