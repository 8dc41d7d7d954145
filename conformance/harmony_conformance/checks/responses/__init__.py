"""Family `responses`: items, their ids and status, and the events of the Responses API.

Other families check the content of an answer after conversion to a chat completion. A fault of form never hides a fault of content.
"""

from __future__ import annotations

from harmony_conformance.checks.responses import (
    agent_tools,
    objects,
    order,
    parameters,
    repeated_content,
    stored,
    turn_history,
    websocket,
)

MODULES = (objects, order, repeated_content, turn_history, agent_tools, stored, parameters, websocket)
