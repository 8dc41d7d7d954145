"""Catalogue of the defects of real servers that the reference server can imitate, one switch each."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from harmony_conformance.reference_server.defects import (
    agents,
    api_surfaces,
    choices,
    client_text,
    conversation_replay,
    delivery,
    harmony_form,
    leaks,
    messages,
    messages_calls,
    messages_delivery,
    odd_requests,
    output_parsing,
    prompt,
    raw_continuation,
    response_json,
    responses,
    sglang,
    streaming,
    structured,
    system_message,
    tools,
    websocket,
)
from harmony_conformance.reference_server.defects.stages import Defect

DEFECTS: Mapping[str, Defect] = MappingProxyType(
    {
        defect.id: defect
        for family in (
            prompt,
            system_message,
            client_text,
            tools,
            output_parsing,
            leaks,
            conversation_replay,
            response_json,
            streaming,
            harmony_form,
            delivery,
            odd_requests,
            structured,
            choices,
            responses,
            agents,
            websocket,
            messages,
            messages_delivery,
            messages_calls,
            api_surfaces,
            raw_continuation,
            sglang,
        )
        for defect in family.DEFECTS
    }
)
"""All defects that the selftest runs, by id."""

SURFACE_DEFECTS: Mapping[str, Defect] = MappingProxyType({defect.id: defect for defect in api_surfaces.SURFACE_DEFECTS})
"""Defects of other APIs than Chat Completions that the selftest skips, by id."""


def find_defects(names: Iterable[str]) -> tuple[Defect, ...]:
    """Return the defects with these ids, in this order.

    Raises:
        LookupError: an id is unknown; the message lists the known ones.
    """
    ids, known = tuple(names), {**DEFECTS, **SURFACE_DEFECTS}
    unknown = [name for name in ids if name not in known]
    if unknown:
        raise LookupError(f"no defect {unknown[0]!r}; there are {', '.join(sorted(known))}")
    return tuple(known[name] for name in ids)
