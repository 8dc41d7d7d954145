"""A server as bare as ASGI allows, answering as upstream.py does; without and with the guard around it."""

import asyncio
import time

from answers import ROLE, Events, asked
from faults import whole

STREAM_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


async def bare(scope, receive, send) -> None:
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
    body = b""
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    plan = asked(body)
    if plan.events:
        await stream(plan, send)
        return
    if plan.pace:
        await asyncio.sleep(plan.pace / 1e6)
    answer = whole(plan)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer, "more_body": False})


async def stream(plan, send) -> None:
    events = Events(plan)
    loop = asyncio.get_running_loop()
    await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
    await send({"type": "http.response.body", "body": ROLE, "more_body": True})
    begun = loop.time()
    for index in range(plan.events):
        if plan.pace and index:
            await asyncio.sleep(begun + index * plan.pace / 1e6 - loop.time())
        await send({"type": "http.response.body", "body": events.text(index, time.monotonic_ns()), "more_body": True})
    await send({"type": "http.response.body", "body": events.last(), "more_body": False})


def guarded():
    """The same with the guard around it, as `uvicorn --factory` wants it."""
    from harmony_proxy.asgi.guard import HarmonyGuard

    return HarmonyGuard(bare)
