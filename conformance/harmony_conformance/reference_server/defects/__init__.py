"""The defects of real servers, each a switch of the reference server."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from harmony_conformance.reference_server.changes import Defect
from harmony_conformance.reference_server.defects import (
    answer,
    choices,
    continuing,
    declaration,
    delivery,
    feeding,
    form,
    framing,
    leaking,
    prompt,
    reading,
    replay,
    requests,
    responses,
    result,
    routing,
    sglang,
    stream,
    structured,
    surfaces,
    text,
)

DEFECTS: Mapping[str, Defect] = MappingProxyType(
    {
        defect.id: defect
        for family in (
            prompt,
            feeding,
            framing,
            text,
            declaration,
            result,
            reading,
            routing,
            leaking,
            replay,
            answer,
            stream,
            form,
            delivery,
            requests,
            structured,
            choices,
            responses,
            surfaces,
            continuing,
            sglang,
        )
        for defect in family.DEFECTS
    }
)
"""Every defect by its id."""

SURFACE_DEFECTS: Mapping[str, Defect] = MappingProxyType({defect.id: defect for defect in surfaces.SURFACE_DEFECTS})
"""Those of the APIs beside Chat Completions that the selftest leaves out."""


def defects_named(names: Iterable[str]) -> tuple[Defect, ...]:
    """The defects with these ids, in this order.

    Raises:
        LookupError: there is none of that id; names those there are.
    """
    wanted = tuple(names)
    known = {**DEFECTS, **SURFACE_DEFECTS}
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise LookupError(f"no defect {unknown[0]!r}; there are {', '.join(sorted(known))}")
    return tuple(known[name] for name in wanted)
