"""Scripts in requests, and the proof that a script was played.

The reference server, and vLLM with the logits processor of this project, take the tokens in an extra member of the request. A teleprompter reads
them from its prompt: the script is text at the end of the last message. The request that is sent, and judged, then has a longer last message.
A teleprompter plays a script only while nothing else chooses tokens: a server that enforces a grammar ends a script that breaks it.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus

from harmony_conformance.apis.api import CHAT_PATH
from harmony_conformance.apis.registry import CHAT_COMPLETIONS
from harmony_conformance.engines.profiles import ScriptMethod
from harmony_conformance.engines.teleprompter.script import (
    TRAILER_LENGTH,
    TeleprompterScriptError,
    read_back,
    write_script,
)
from harmony_conformance.evidence.emitted_ids import cut_at_stop, ends_a_turn
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.levels import SPLIT_IN_DOUBT
from harmony_conformance.evidence.series_pairs import STREAM_SUFFIX, prompt_count, stream_step_pairs
from harmony_conformance.json_value import Json, JsonObject, dumps, integer, items, members, text, value_at
from harmony_conformance.prompts.request_members import content_text
from harmony_conformance.transport.messages import Request
from harmony_ref import decode, encode, encode_with_special_tokens, tokens

_END = "<|end|>"
_CONTINUATION = "Fine.<|return|>"
_DEFAULT_SCRIPT = "<|channel|>final<|message|>Fine.<|return|>"


@dataclass(frozen=True, kw_only=True)
class Scripting:
    """Script method of one endpoint, with the calibration of a teleprompter.

    Attributes:
        suffix_tokens: Number of tokens between a last message and the answer, for each role that can carry a script.
        counts_stop: True if `completion_tokens` includes the token that ends a turn.
        grammar_members: Request members that may make the server enforce a grammar, if no ids prove that a script was played.
    """

    method: ScriptMethod = ScriptMethod.NONE
    suffix_tokens: Mapping[str, int] = field(default_factory=dict[str, int])
    counts_stop: bool = True
    grammar_members: frozenset[str] = frozenset()


class ScriptUnsupportedError(Exception):
    """A request that cannot carry its script. The message has the reason, as a predicate of the request."""


def with_script(body: JsonObject, script: Sequence[int], way: Scripting) -> JsonObject:
    """Return the request with a script that makes the model emit these ids.

    Raises:
        ScriptUnsupportedError: The request has no place for the script.
    """
    match way.method:
        case ScriptMethod.NONE | ScriptMethod.DERENDER:
            return body  # the ids are sent to the derender endpoint
        case ScriptMethod.VLLM:
            # a text is what every vLLM accepts: 0.11.0 takes no lists here, later versions only in Chat Completions
            return {**body, "vllm_xargs": {"harmony_script": " ".join(map(str, script))}}
        case ScriptMethod.REFERENCE:
            return {**body, "harmony_script": list(script)}
        case ScriptMethod.TELEPROMPTER:
            if "prompt" in body and "messages" not in body:
                return {**body, "prompt": _prompt_with_script(body["prompt"], script)}
            return {**body, "messages": _messages_with_script(items(body.get("messages")), script, way.suffix_tokens)}


def with_default_script(body: JsonObject, way: Scripting) -> JsonObject:
    """Return a request without a script, with a short answer for a teleprompter if the request can carry one."""
    if way.method is not ScriptMethod.TELEPROMPTER:
        return body
    try:
        return with_script(body, encode_with_special_tokens(_DEFAULT_SCRIPT), way)
    except ScriptUnsupportedError:
        return body


def with_forced_prefix(body: JsonObject, begins: Sequence[int], way: Scripting) -> JsonObject:
    """Return the request with a script for the beginning of the answer; the model generates the rest.

    A teleprompter ends the answer with `Fine.`, which is invalid JSON.

    Raises:
        ScriptUnsupportedError: The request has no place for the script.
    """
    if way.method is ScriptMethod.TELEPROMPTER:
        return with_script(body, (*begins, *encode_with_special_tokens(_CONTINUATION)), way)
    scripted = with_script(body, begins, way)
    match way.method:
        case ScriptMethod.VLLM:
            return {**scripted, "vllm_xargs": {**members(scripted["vllm_xargs"]), "harmony_script_then": "model"}}
        case ScriptMethod.REFERENCE:
            return {**scripted, "harmony_script_then": "model"}
        case _:
            return scripted


def _messages_with_script(messages: Sequence[Json], script: Sequence[int], suffixes: Mapping[str, int]) -> list[Json]:
    last = messages[-1] if messages else None
    role = text(value_at(last, "role"))
    if role not in suffixes:
        raise ScriptUnsupportedError(f"its last message (role {role or 'missing'}) cannot end with a script")
    end = _write_script(script, suffixes[role])
    if suffixes[role] > TRAILER_LENGTH and dumps(end.strip()) != f'"{end.strip()}"':
        raise ScriptUnsupportedError(f"its last message (role {role}) is quoted as JSON, which changes the script")
    return [*messages[:-1], {**members(last), "content": _extended(value_at(last, "content"), end)}]


def _prompt_with_script(prompt: Json, script: Sequence[int]) -> Json:
    """Return a Harmony prompt, text or ids, with the script at the end of its last complete message."""
    ids = [one for token in items(prompt) if (one := integer(token)) is not None]
    written = prompt if isinstance(prompt, str) else decode(ids) if all(map(tokens.is_known, ids)) else ""
    before, mark, after = written.rpartition(_END)
    if not mark:
        raise ScriptUnsupportedError("its prompt has no complete message")
    longer = f"{before}{_write_script(script, len(encode_with_special_tokens(mark + after)))}{mark}{after}"
    return longer if isinstance(prompt, str) else [*encode_with_special_tokens(longer)]


def _write_script(script: Sequence[int], suffix_tokens: int) -> str:
    try:
        return write_script(script, suffix_tokens)
    except TeleprompterScriptError as problem:
        raise ScriptUnsupportedError(str(problem)) from None


def _extended(content: Json, end: str) -> Json:
    if isinstance(content, str):
        return content + end
    parts = items(content)
    if not parts or not isinstance(last := value_at(parts[-1], "text"), str):
        raise ScriptUnsupportedError("the content of its last message does not end with text")
    return [*parts[:-1], {**members(parts[-1]), "text": last + end}]


def drop_unplayed_script(x: Exchange, way: Scripting) -> Exchange:
    """Return the exchange, without its script if the model did not play it.

    The proof are the returned ids of a teleprompter, else their number; never the text, which the checks judge. The number proves nothing if a grammar
    may have chosen tokens. After the grammar ends, the model plays the rest of the script, so the number is often right.
    """
    if way.method is not ScriptMethod.TELEPROMPTER or x.turn is None:
        return x
    if x.script is None:
        return replace(x, script_not_played=_NO_SCRIPT)
    expected = cut_at_stop(x.script)[: x.max_output_tokens]
    returned, usage = x.turn.output_ids, x.turn.usage
    if returned is None:
        count = usage.completion_tokens if usage is not None else None
        is_plausible = not any(value_at(x.chat_request, name) for name in way.grammar_members)
    else:
        count, is_plausible = len(cut_at_stop(returned)), cut_at_stop(returned) == expected[: len(returned)]
    uncounted = int(returned is None and not way.counts_stop and ends_a_turn(expected))
    is_played = is_plausible and (count in (None, len(expected) - uncounted) or x.has_stop_string)
    return x if is_played else _without_script(x, _UNPLAYED if is_plausible or returned is not None else _UNPROVEN)


def drop_unproven_stream_scripts(series: Series, method: ScriptMethod | None = None) -> Series:
    """Return the series, without the id-less scripts that a teleprompter read in other tokens, or whose unstreamed request was not played.

    `method`: the script method, None if it is unknown, as in a recording. Other methods than a teleprompter change nothing.

    A grammar may replace tokens of a teleprompter without changing their number, so the number does not prove a stream.
    """
    if method not in (None, ScriptMethod.TELEPROMPTER):
        return series
    exchanges = {step: _restate_reason(x) for step, x in series.exchanges.items()}
    other = _split_otherwise(series)
    exchanges |= {step: _without_script(series.exchanges[step], _SPLIT) for step in other}
    exchanges |= {step: _without_script(x, _MAYBE_SPLIT) for step, x in _maybe_split(exchanges).items()}
    for whole, streamed in stream_step_pairs(series):
        x = exchanges[streamed]
        if exchanges[whole].script_not_played in ("", _NO_SCRIPT) or x.script is None:
            continue
        if x.turn is None or x.turn.output_ids is None:
            exchanges[streamed] = _without_script(x, exchanges[whole].script_not_played)
    return replace(series, exchanges=exchanges)


def _restate_reason(x: Exchange) -> Exchange:
    """Return the exchange. Older recordings say of any script without proof that it was not played."""
    has_ids = x.turn is not None and x.turn.output_ids is not None
    is_unproven = x.script_not_played == _UNPLAYED and not has_ids and _may_have_grammar(x)
    return replace(x, script_not_played=_UNPROVEN) if is_unproven else x


def _maybe_split(exchanges: Mapping[str, Exchange]) -> dict[str, Exchange]:
    """Return the server errors that may be the answer to another script: the server may split its combining marks in another way.

    Such an answer shows neither ids nor counts. A part of the scripted text, or an answer to the same last message, proves the script.
    """
    proven = {
        dumps(x.messages[-1:])
        for x in exchanges.values()
        if x.script and x.turn is not None and x.turn.usage is not None and x.turn.usage.completion_tokens is not None
    }
    return {step: x for step, x in exchanges.items() if _is_split_in_doubt(x) and dumps(x.messages[-1:]) not in proven}


def _is_split_in_doubt(x: Exchange) -> bool:
    if not x.script or x.response is None:
        return False
    has_failed = x.response.status >= HTTPStatus.INTERNAL_SERVER_ERROR or (x.stream is not None and x.error is not None)
    shows_text = x.turn is not None and (x.turn.has_answer or bool(x.turn.reasoning))
    has_marks = any(unicodedata.category(character).startswith("M") for character in decode(x.script))
    return has_failed and has_marks and not shows_text


def _split_otherwise(series: Series) -> frozenset[str]:
    """Return the steps without output ids whose prompt has another number of tokens than ours: the server splits its text in another way.

    A teleprompter then reads the script at a wrong place. Ours is the number of a prompt shown as text. It also follows from most scripts of the same
    request: the tokens around the last text are the same for each of them.
    """
    around: dict[str, dict[str, int]] = {}
    other: set[str] = set()
    for step, x in series.exchanges.items():
        count = prompt_count(x)
        if count is None or x.turn is None or x.turn.output_ids is not None or not x.script or not x.messages:
            continue
        written = content_text(value_at(x.messages[-1], "content")) or ""
        is_read = dumps(list(x.script))[1:-1] in dumps([*read_back(written)])
        has_markers = encode(written) != encode_with_special_tokens(written)  # a server may make them special tokens
        if has_markers or not is_read:
            continue
        shown = x.rendered_prompt
        if shown is not None and shown.is_text and len(shown.ids) != count:
            other.add(step)
        if value_at(x.messages[-1], "role") != "user" or not isinstance(value_at(x.messages[-1], "content"), str):
            continue  # servers quote results, and join parts, in their own ways
        same = {**members(x.chat_request), "messages": x.messages[:-1]}
        key = dumps(
            [same.get(name) for name in ("messages", "tools", "tool_choice", "response_format", "reasoning_effort")]
        )
        around.setdefault(key, {})[step] = count - len(encode(written))
    for counts in around.values():
        ((usual, times),) = Counter(counts.values()).most_common(1)
        other |= {step for step, count in counts.items() if count != usual and times > len(counts) // 2 > 0}
    return frozenset(other)


def mark_unscripted(series: Series, method: ScriptMethod | None) -> Series:
    """Return the series, with a mark on the answers that vLLM's weights wrote: those without a script, and those whose ids are not their script's.

    Ids may be missing (vLLM 0.11.0 leaves headers out of its streams), and `<|endoftext|>` may follow.
    """
    if method is not ScriptMethod.VLLM:
        return series
    return replace(series, exchanges={step: _mark_unscripted(x) for step, x in series.exchanges.items()})


def _mark_unscripted(x: Exchange) -> Exchange:
    if x.script is None:
        return replace(x, may_be_random=True)
    returned = x.turn.output_ids if x.turn is not None else None
    left = iter(x.script)
    is_played = all(token in left for token in returned or () if token != tokens.ENDOFTEXT or token in x.script)
    return x if is_played else replace(_without_script(x, _UNPLAYED), may_be_random=True)


def is_unproven(x: Exchange, way: Scripting) -> bool:
    """Return True if only the number of tokens suggests that a script was played, and a grammar may have replaced tokens.

    Streams are excluded: the unstreamed response to the same request decides, see `drop_unproven_stream_scripts`.
    """
    if way.method is not ScriptMethod.TELEPROMPTER or x.script is None or x.api == CHAT_COMPLETIONS.name:
        return False
    has_ids = x.turn is None or x.turn.output_ids is not None
    return _may_have_grammar(x) and not has_ids and STREAM_SUFFIX not in x.step


def _may_have_grammar(x: Exchange) -> bool:
    return any(value_at(x.chat_request, name) for name in ("tools", "response_format"))


def as_chat_completions(x: Exchange, asks_for_ids: Collection[str]) -> Exchange:
    """Return the same request for Chat Completions, with the members that request token ids."""
    body: JsonObject = {**members(x.chat_request), "stream": False, **dict.fromkeys(asks_for_ids, True)}
    body.pop("stream_options", None)
    request = Request(path=CHAT_PATH, body=dumps(body).encode("utf-8", "backslashreplace"))
    return replace(x, api=CHAT_COMPLETIONS.name, request=request, response=None, failure=None)


def drop_refuted_script(x: Exchange, shown: Exchange, way: Scripting) -> Exchange:
    """Return the exchange, without its script unless the same request over Chat Completions, `shown`, played it."""
    is_played = shown.turn is not None and drop_unplayed_script(shown, way).script is not None
    return x if is_played else _without_script(x, _UNPROVEN)


def _without_script(x: Exchange, reason: str) -> Exchange:
    return replace(x, script=None, expected=None, script_not_played=reason)


_NO_SCRIPT = "the request has no script, and a teleprompter generates no text without one"
_SPLIT = f"the server splits its prompt {SPLIT_IN_DOUBT}, so that a teleprompter reads another script"
_MAYBE_SPLIT = f"whether the script was played is not shown: the server may split its text {SPLIT_IN_DOUBT}, and the answer has no counts"
_UNPLAYED = "the output differs from the script, for example because the server enforces a grammar"
_UNPROVEN = "whether the script was played is not shown: the server may enforce a grammar, and returns no token ids"
