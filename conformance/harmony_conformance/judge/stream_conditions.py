"""Conditions on the APIs of streams. The docstring of each completes "applies to …"."""

from __future__ import annotations

from harmony_conformance.apis.api import Framing
from harmony_conformance.apis.registry import CHAT_COMPLETIONS, COMPLETIONS, MESSAGES, RESPONSES
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.judge.condition import condition, evidence
from harmony_conformance.judge.conditions import is_generation

_STREAM_DEFAULTS_TO_FALSE = frozenset({CHAT_COMPLETIONS.name, RESPONSES.name, MESSAGES.name, COMPLETIONS.name})


@condition
def api_streams_events(x: Exchange) -> bool:
    """ordinary exchanges on an API whose streams are server-sent events: all but Ollama's"""
    return x.api_adapter.framing is Framing.SERVER_SENT and is_generation.holds(x)


@evidence
def is_over_http(x: Exchange) -> bool:
    """exchanges over HTTP: the messages of a WebSocket have no content type"""
    return x.websocket is None


@condition
def api_streams_on_request(x: Exchange) -> bool:
    """ordinary exchanges on Chat Completions, Responses, Messages and Completions, where `stream` defaults to false"""
    return x.api in _STREAM_DEFAULTS_TO_FALSE and is_generation.holds(x)
