"""Commands that reproduce a finding: curl for a URL, a run of this program for the embedded server and for a WebSocket.

A key appears only as its variable.

A derendered stream also needs `jq`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from shlex import quote as quote_visible
from types import MappingProxyType

from harmony_conformance.apis.messages import MESSAGES
from harmony_conformance.apis.messages.client_headers import VERSION_HEADER
from harmony_conformance.checks.helpers.counted_pairs import shorter_step
from harmony_conformance.checks.helpers.counted_requests import REPEATED_BASE_STEP
from harmony_conformance.engines.profiles import DERENDER_PATH
from harmony_conformance.engines.render_derender import render_request, split_event_requests, whole_request
from harmony_conformance.engines.target import Target
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.levels import AnsweredBy
from harmony_conformance.evidence.series_pairs import STREAM_SUFFIX
from harmony_conformance.json_value import InvalidJsonError, dumps, items, loads, value_at
from harmony_conformance.judge.check import Outcome, Verdict
from harmony_conformance.judge.conditions import wants_one_choice
from harmony_conformance.judge.judge import Result, is_comparison
from harmony_conformance.plugins.registry import find_check, plugin_arguments
from harmony_conformance.runtime.terminal_text import escape_invisible
from harmony_conformance.transport.messages import Request
from harmony_ref import decode

_REPRODUCED = frozenset((Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE))
_ACCOUNTING = "accounting."
_RUN = "harmony-conformance run"
_STORED_PATH = re.compile(r"/(responses|conversations)/[^/?]+")
_STATE_MEMBERS = ("previous_response_id", "conversation")
"""Members of a Responses request with the id of something that the server stored."""
_MAX_BODY = 6000  # bytes of the bodies in curl commands
_MAX_COMMANDS = 20_000  # characters of several commands
_CURL_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "--proxy": "--proxy",
        "--unix-socket": "--unix-socket",
        "--ca-file": "--cacert",
        "--client-cert": "--cert",
        "--client-key": "--key",
    }
)
"""curl's name for each option of a run that curl needs as well."""


def reproduce_result(
    target: Target, result: Result, exchanges: Mapping[str, Exchange], key_env: str | None, options: Sequence[str] = ()
) -> str:
    """Return commands that reproduce the first failing finding of a result; empty if nothing went wrong.

    If several exchanges were compared, the commands of the others come first.

    `options`: Arguments of the run that a run of the scenario has to repeat.
    """
    if result.outcome not in _REPRODUCED:
        return ""
    options = (*options, *plugin_arguments(result.check))
    x = shown_exchange(result, exchanges)
    command = reproduce(target, x, result.scenario, key_env, options)
    others = _counterparts(x, result, exchanges) if x is not None and not command.startswith(_RUN) else ()
    commands = [*(reproduce(target, other, result.scenario, key_env, options) for other in others), command]
    joined = "; ".join(commands)
    return joined if len(joined) <= _MAX_COMMANDS and not any(one.startswith(_RUN) for one in commands) else command


def shown_exchange(result: Result, exchanges: Mapping[str, Exchange]) -> Exchange | None:
    """Return the exchange of the first failing finding. If it is unknown, return that of another finding, or one that was judged."""
    findings = sorted(result.findings, key=lambda finding: finding.verdict is not Verdict.FAIL)
    ids = (*(finding.exchange for finding in findings), *result.exchanges)
    return next((exchanges[one] for one in ids if one in exchanges), None)


def script_text(x: Exchange | None) -> str:
    """Return the scripted output of the model as text; empty without a script."""
    return decode(x.script) if x is not None and x.script else ""


def _counterparts(x: Exchange, result: Result, exchanges: Mapping[str, Exchange]) -> list[Exchange]:
    """Return the exchanges that a comparison compared with `x`.

    This is a whole answer, the same step over the first API, or a prompt with a shorter text.
    Otherwise it is the only other exchange, or all counted prompts.
    """
    rule = find_check(result.check)
    if rule is None or not is_comparison(rule):
        return []
    step, is_stream, suffixes = x.id.partition(STREAM_SUFFIX)
    shorter = x.id.replace(f"/{x.step}/", f"/{shorter_step(x.step)}/")
    others = [one for one in result.exchanges if one != x.id]
    if result.check.startswith("apis."):
        own = x.id.replace(f"/{x.api}/", "/", 1)
        others = [one for one in others if one in exchanges and one.replace(f"/{exchanges[one].api}/", "/", 1) == own][
            :1
        ]
    elif is_stream:
        others = [f"{step}/{suffixes.rpartition('/')[2]}"]
    elif shorter in others:
        others = [shorter]
    elif len(others) > 1 and not result.check.startswith(_ACCOUNTING):
        return []
    return [exchanges[one] for one in others if one in exchanges and exchanges[one].step != REPEATED_BASE_STEP]


def reproduce(
    target: Target, x: Exchange | None, scenario: str, key_env: str | None, options: Sequence[str] = ()
) -> str:
    """Return a command for the exchange of a finding, or for the whole scenario."""
    is_derendered_stream = x is not None and x.answered_by is AnsweredBy.DERENDER and x.wants_stream
    if x is not None and target.base_url is not None and is_derendered_stream and wants_one_choice.holds(x):
        command = _derendered_stream(target.base_url, x, key_env, options)
        if len(command) <= _MAX_COMMANDS:
            return command
    # curl sends no messages over a WebSocket, and a later turn needs the earlier ones of its connection
    is_single = x is not None and x.websocket is None and not _has_id_of_the_server(x)
    requests = tuple(_requests(x)) if x is not None and is_single else ()
    if target.base_url is None or x is None or not requests or sum(len(one.body) for one in requests) > _MAX_BODY:
        key = ("--api-key-env", key_env) if key_env else ()
        return " ".join((_RUN, *map(quote, (str(target), *options, *key, "--select", scenario))))
    return "; ".join(
        _curl(target.base_url, request, key_env, options, is_stream=x.wants_stream) for request in requests
    )


def _has_id_of_the_server(x: Exchange) -> bool:
    """Return True for a request with an id or a state from another response. Only that server knows it, and not for ever."""
    if _STORED_PATH.search(x.request.path):
        return True
    given = items(value_at(x.request.json, "input"))
    has_state = any(value_at(one, "encrypted_content") or value_at(one, "type") == "item_reference" for one in given)
    return has_state or any(value_at(x.request.json, name) for name in _STATE_MEMBERS)


def _requests(x: Exchange) -> Iterator[Request]:
    """Yield the requests of an exchange; nothing for a derendered stream, whose requests have states from the responses."""
    if x.answered_by is AnsweredBy.API:
        yield x.request
    elif x.answered_by is AnsweredBy.RENDER:
        yield render_request(x)
    elif not x.wants_stream:
        yield from (render_request(x), whole_request(x))


def _derendered_stream(base: str, x: Exchange, key_env: str | None, options: Sequence[str]) -> str:
    """Return commands that render a prompt and derender its stream event by event. `jq` carries the state from response to request."""
    size = x.step.partition(f"{STREAM_SUFFIX} by ")[2]
    common, chunks = split_event_requests(x, int(size) if size.isdecimal() else 1)
    render = _curl(base, render_request(x), key_env, options, is_stream=False)
    event = _curl(base, replace(x.request, path=DERENDER_PATH, body=b"@-"), key_env, options, is_stream=False)
    body = quote(f"{dumps(common)} + {{generate_chunk: $chunk, stream_state: $state}}")
    request = f'jq -nc --argjson chunk "$chunk" --argjson state "$state" {body} | {event}'
    answer = """printf '%s\\n' "$answer"; state=$(printf '%s' "$answer" | jq -c .stream_state)"""
    words = " ".join(quote(dumps(chunk)) for chunk in chunks)
    return f"{render}; state=null; for chunk in {words}; do answer=$({request}); {answer}; done"


def _curl(base: str, request: Request, key_env: str | None, options: Sequence[str], *, is_stream: bool) -> str:
    content_type = request.headers.get("content-type", "application/json")
    parts = ["curl", *(["-N"] if is_stream else []), "-sS", "-X", request.method, quote(base + request.path)]
    parts += ["-H", quote(f"content-type: {content_type}")]
    for name, value in pairwise(options):
        parts += [_CURL_OPTIONS[name], quote(value)] if name in _CURL_OPTIONS else []
    parts += ["--http2"] if "--http2" in options else []
    if key_env:
        parts += ["-H", f'"authorization: Bearer ${key_env}"']
        if request.path.startswith(MESSAGES.path):
            parts += ["-H", f'"x-api-key: ${key_env}"', "-H", quote(": ".join(VERSION_HEADER))]
    parts += ["--data-binary" if b"\n" in request.body or b"\r" in request.body else "-d", _quote_body(request.body)]
    return " ".join(parts)


def quote(word: str) -> str:
    """Return the word quoted for a shell, as `$'…'` with the bytes in hexadecimal if it has invisible characters."""
    if escape_invisible(word) == word:
        return quote_visible(word)
    return f"$'{''.join(map(_in_dollar_quotes, word))}'"


def _in_dollar_quotes(char: str) -> str:
    if char in "\\'":
        return f"\\{char}"
    if escape_invisible(char) == char:
        return char
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))


def _quote_body(body: bytes) -> str:
    """Return a body quoted for a shell: JSON with its own escapes if that leaves it equal, else byte by byte."""
    word = body.decode("utf-8", "surrogateescape")
    escaped = escape_invisible(word)
    if escaped != word:
        try:
            if loads(escaped) == loads(word):
                return quote_visible(escaped)
        except InvalidJsonError:
            pass
    return quote(word)
