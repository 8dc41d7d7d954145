"""Family `responses`: items, their ids and status, and the events of the Responses API.

Other families check the content of an answer after conversion to a chat completion. A fault of form never hides a fault of content.
"""

from __future__ import annotations

from harmony_conformance.checks.responses.objects import (
    counted_thought_has_an_item,
    ids_are_unique,
    items_have_their_members,
    response_has_its_members,
    status_says_how_it_ended,
)
from harmony_conformance.checks.responses.order import (
    events_are_numbered,
    events_follow_the_grammar,
    items_stand_in_order,
    texts_begin_and_end,
)
from harmony_conformance.checks.responses.repeated_content import (
    events_name_their_item,
    items_stay_as_announced,
    last_event_has_the_items,
    texts_are_told_alike,
)
from harmony_conformance.checks.responses.turn_history import built_in_calls_are_items, stored_is_as_passed_back

__all__ = [
    "built_in_calls_are_items",
    "counted_thought_has_an_item",
    "events_are_numbered",
    "events_follow_the_grammar",
    "events_name_their_item",
    "ids_are_unique",
    "items_have_their_members",
    "items_stand_in_order",
    "items_stay_as_announced",
    "last_event_has_the_items",
    "response_has_its_members",
    "status_says_how_it_ended",
    "stored_is_as_passed_back",
    "texts_are_told_alike",
    "texts_begin_and_end",
]
