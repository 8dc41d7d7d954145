"""Faults of a soak and the bytes that must arrive despite them. The plan requests faults of the server; the client causes its own."""

from dataclasses import dataclass

from answers import GARBAGE, ROLE, WHOLE, Events, Plan

STALL_SECONDS = 1.5
SETTLE_SECONDS = 0.25
"""Seconds before a reset: what was sent is given this long to arrive at the proxy: a reset takes back what has not been read."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault.

    Attributes:
        streamed: True if it affects streams, else complete answers.
        complete: True if the answer still ends correctly by HTTP.
        answered: True if the server answers at all. If not, the proxy must answer with a 502.
    """

    what: str
    streamed: bool
    complete: bool
    answered: bool = True


FAULTS = {
    "reset": Fault(what="the server resets the connection in the middle of a stream", streamed=True, complete=False),
    "cut": Fault(what="the server closes the connection in the middle of a stream", streamed=True, complete=False),
    "stall": Fault(what="the server says nothing for a while", streamed=True, complete=True),
    "garbage": Fault(what="events that are no JSON, no UTF-8 and no events", streamed=True, complete=True),
    "truncated": Fault(what="half a JSON object, as whole HTTP", streamed=False, complete=True),
    "short": Fault(what="fewer bytes than content-length says", streamed=False, complete=False),
    "nonsense": Fault(what="an answer that is no HTTP", streamed=False, complete=False, answered=False),
    "refused": Fault(what="the connection closed without an answer", streamed=False, complete=False, answered=False),
}

CLIENT_FAULTS = {
    "slow": "the client reads nothing for a while, then continues",
    "leaves": "the client hangs up in the middle of a stream",
}


def sent(plan: Plan) -> bytes:
    """Return all bytes of the body that the server sends. Only for plans with numbers, because times are unknown beforehand."""
    if not plan.events:
        return whole(plan)
    events = Events(plan)
    stop = middle(plan) if plan.fault in ("reset", "cut") else plan.events
    parts = [ROLE]
    for index in range(stop):
        if plan.fault == "garbage" and index == middle(plan):
            parts.append(GARBAGE)
        parts.append(events.text(index, 0))
    if stop == plan.events:
        parts.append(events.last())
    return b"".join(parts)


def whole(plan: Plan) -> bytes:
    """Return the sent part of a complete answer's body."""
    if plan.fault in FAULTS and not FAULTS[plan.fault].answered:
        return b""
    body = WHOLE.replace(b"chatcmpl-7f9c0d2e41aa", b"chatcmpl-%012d" % plan.number) if plan.number else WHOLE
    return body[: len(body) // 2] if plan.fault in ("truncated", "short") else body


def middle(plan: Plan) -> int:
    return plan.events // 2
