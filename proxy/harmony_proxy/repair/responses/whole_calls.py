"""Calls of agents' tools in a stream of Responses: an event that has one whole is cleaned as in a complete answer.

Commands, patches and searches have no deltas: the event that completes the item is the first with their text. Inputs and arguments whose deltas
were emitted stay as they are, because an event that repeats them may not differ from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from harmony_conformance.apis.registry import RESPONSES
from harmony_conformance.checks.responses.views import STATUS_BY_FINAL_EVENT, TEXT_KIND_BY_EVENT
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, JsonObject, dumps, items, loads, members, text, value_at
from harmony_conformance.transport.messages import Chunk, Response
from harmony_proxy.policy.policy import Action
from harmony_proxy.repair.answer.action_notes import ActionNotes
from harmony_proxy.repair.answer.strict_leaks import LEAK_CHECKS
from harmony_proxy.repair.answer.whole_answer import repair_answer
from harmony_proxy.repair.responses.server_events import FUNCTION_CALL, ITEM_DONE
from harmony_proxy.repair.stream_parts.event_splitter import RawEvent
from harmony_proxy.repair.text.leak_prefixes import MARKER
from harmony_proxy.repair.text.rare_texts import kind_of_call

_DELTAS = frozenset(f"{stem}.delta" for stem in TEXT_KIND_BY_EVENT)
_TEXTS = ("input", "arguments", "code")
"""The members of a call that deltas have."""
_LISTED = "mcp_list_tools"
_ENVELOPE: JsonObject = {"id": "resp", "object": "response", "created_at": 0, "model": "", "status": "completed"}


class WholeCalls:
    """Cleans the calls of one stream. Stores the places with deltas, the listed tools of MCP servers, and the cleaned items."""

    def __init__(self, x: Exchange, actions: Mapping[str, Action], notes: ActionNotes) -> None:
        self._x, self._notes = x, notes
        self._actions = {check: action for check, action in actions.items() if check in LEAK_CHECKS}
        self._is_active = x.api == RESPONSES.name and Action.REPAIR in self._actions.values()
        self._with_deltas: set[str] = set()
        self._listed: list[Json] = []
        self._cleaned: list[tuple[Json, Json]] = []

    def clean(self, piece: RawEvent) -> RawEvent:
        """Return an event with its calls cleaned; the same event if nothing is to be cleaned."""
        if not self._is_active:
            return piece
        event = members(piece.value)
        kind, item = text(event.get("type")), event.get("item")
        if kind in _DELTAS:
            self._with_deltas |= _keys(event.get("item_id"), event.get("output_index"))
        elif kind in STATUS_BY_FINAL_EVENT and self._cleaned:
            response = members(event.get("response"))
            output: Json = [self._clean_copy(one) for one in items(response.get("output"))]
            return _with_value(piece, {**event, "response": {**response, "output": output}})
        elif kind == ITEM_DONE and value_at(item, "type") == _LISTED:
            self._listed.append(item)
        elif kind_of_call(event, RESPONSES.name) not in ("", FUNCTION_CALL) and MARKER.search(dumps(item)) is not None:
            has_deltas = _keys(value_at(item, "id"), event.get("output_index")) & self._with_deltas
            clean = self._clean_item(item, is_end=kind == ITEM_DONE, keeps_texts=bool(has_deltas))
            return piece if clean is None else _with_value(piece, {**event, "item": clean})
        return piece

    def _clean_item(self, item: Json, *, is_end: bool, keeps_texts: bool) -> Json:
        """Return the item as the repair of a complete answer leaves it; None if that is no repair, or changes a text whose deltas were emitted."""
        answer: JsonObject = {**_ENVELOPE, "output": [*self._listed, item]}
        chunk = Chunk(arrival_time=0.0, data=dumps(answer).encode("utf-8", "backslashreplace"))
        response = Response(status=200, headers={"content-type": "application/json"}, chunks=(chunk,))
        repaired = repair_answer(replace(self._x, response=response), self._actions, fallback=Action.OBSERVE)
        actions = repaired.actions
        if repaired.body is None or actions.blocked_checks or actions.unrepaired_reasons:
            return None
        clean = items(value_at(loads(repaired.body), "output"))[-1]
        if clean == item or (keeps_texts and any(value_at(clean, name) != value_at(item, name) for name in _TEXTS)):
            return None
        self._cleaned.append((item, clean))
        self._notes.count(actions.repair_counts if is_end else ())
        return clean

    def _clean_copy(self, item: Json) -> Json:
        return next((clean for leaking, clean in self._cleaned if leaking == item), item)


def _with_value(piece: RawEvent, value: JsonObject) -> RawEvent:
    """Return the event with another value; the same event if the value is equal."""
    return piece if value == piece.value else replace(piece, raw=piece.encode_value(value), data=dumps(value))


def _keys(*names: Json) -> set[str]:
    """Return what identifies an item, as text: a server can send any JSON value there."""
    return {dumps(name) for name in names if name is not None}
