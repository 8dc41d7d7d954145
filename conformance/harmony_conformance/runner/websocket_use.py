"""The requests of a run that go over WebSockets."""

from __future__ import annotations

from enum import StrEnum

from harmony_conformance.apis.registry import RESPONSES
from harmony_conformance.golden.scenario import Scenario


class WebSocketUse(StrEnum):
    """Use of WebSockets: for no request, for the scenarios about the connection, or for every streamed Responses request."""

    NONE = "none"
    SCENARIOS = "scenarios"
    STREAMS = "streams"

    def is_planned(self, scenario: Scenario) -> bool:
        """Return True if a run with this use sends the scenario."""
        return self is not WebSocketUse.NONE or not scenario.over_websocket

    def applies_to(self, scenario: Scenario) -> bool:
        """Return True if the streamed requests of a scenario go over a WebSocket."""
        if scenario.api != RESPONSES.name:
            return False
        return self is WebSocketUse.STREAMS or (self is WebSocketUse.SCENARIOS and scenario.over_websocket)
