"""Facts of a request that a stream needs in this process. Its texts are read where the stream is judged: for a large request in another one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Concatenate, ParamSpec, TypeVar

from harmony_conformance.apis.registry import refine_api
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.leaks.about_harmony import share_request_views
from harmony_conformance.prompts.request_members import can_be_called
from harmony_conformance.runtime.caching import share_view
from harmony_conformance.transport.messages import Request
from harmony_proxy.repair.answer.fixes import declared_functions
from harmony_proxy.repair.answer.strict_leaks import request_words

_Arguments = ParamSpec("_Arguments")
_Value = TypeVar("_Value")


@dataclass(frozen=True, kw_only=True)
class RequestFacts:
    """The name of the API, the functions that a request declares, and those of them that it allows the model to call."""

    api: str
    declared_functions: frozenset[str]
    allowed_functions: frozenset[str]


def read_facts(request: Request, api: str) -> RequestFacts:
    """Read a request of an API."""
    x = Exchange(id="", request=request, api=refine_api(api, request.json))
    declared = declared_functions(x)
    allowed = frozenset(one for one in declared if can_be_called(x.chat_request, one))
    return RequestFacts(api=x.api, declared_functions=declared, allowed_functions=allowed)


def share_request(source: Exchange, target: Exchange) -> None:
    """Store what was read of a request in another exchange with the same request."""
    vars(target)["chat_request"] = source.chat_request
    share_request_views(source, target)
    share_view(request_words, source, target)


def with_last_request(
    function: Callable[Concatenate[Exchange, _Arguments], _Value],
    x: Exchange,
    /,
    *args: _Arguments.args,
    **named: _Arguments.kwargs,
) -> _Value:
    """Call a function of an exchange. A request that is the same as in the last call is not read again."""
    for last in _last:
        if last.request == x.request and last.api == x.api:
            x = replace(x, request=last.request)
            share_request(last, x)
    _last[:] = [x]
    return function(x, *args, **named)


_last: list[Exchange] = []
