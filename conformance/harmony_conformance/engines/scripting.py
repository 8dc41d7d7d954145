"""How a script travels in a request, and whether it was played.

The reference server and vLLM with our logits processor are told the tokens beside the request. A teleprompter reads them in its prompt: the script stands as
text at the end of the last message, so the request that is sent, and judged, has a longer last message. What it then says is what it was told only as long as
nothing else chooses tokens: a server that holds the output to a grammar plays no script that breaks it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from harmony_conformance.apis.api import CHAT
from harmony_conformance.apis.registry import CHAT_COMPLETIONS
from harmony_conformance.engines.profiles import ScriptMethod
from harmony_conformance.engines.teleprompter.script import TRAILER, TeleprompterScriptError, write_script
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.expected_output import cut_at_stop, ends_a_turn
from harmony_conformance.evidence.series_pairs import STREAMED, whole_and_streamed
from harmony_conformance.json_value import Json, JsonObject, at, dumps, items, members, number, text
from harmony_conformance.transport.messages import Request
from harmony_ref import decode, encode_with_special_tokens, tokens

_END = "<|end|>"
_OWN_WORDS = tuple(encode_with_special_tokens("Fine.<|return|>"))
_SOME_WORDS = tuple(encode_with_special_tokens("<|channel|>final<|message|>Fine.<|return|>"))


@dataclass(frozen=True, kw_only=True)
class Scripting:
    """The way of scripts to one endpoint; of a teleprompter also what was tried.

    Attributes:
        trailers: what follows a last message of each role that can carry a script, in tokens.
        counts_stop: whether the token that ends a turn is counted among those of the answer.
        held_by: the members of a request that may make the server hold its output to a grammar, where no ids show whether a script was played.
    """

    method: ScriptMethod = ScriptMethod.NONE
    suffix_tokens: Mapping[str, int] = field(default_factory=dict[str, int])
    counts_stop: bool = True
    grammar_members: frozenset[str] = frozenset()


class ScriptUnsupportedError(Exception):
    """A request that cannot carry its script; says why."""


def with_script(body: JsonObject, script: Sequence[int], way: Scripting) -> JsonObject:
    """A request that makes the model emit these ids.

    Raises:
        NotCarried: it has no place for them.
    """
    listed: list[Json] = list(script)
    match way.method:
        case ScriptMethod.NONE | ScriptMethod.DERENDER:
            return body  # to derender, the ids are given to the other half of the server
        case ScriptMethod.VLLM:
            return {**body, "vllm_xargs": {"harmony_script": _as_text(script)}}
        case ScriptMethod.REFERENCE:
            return {**body, "harmony_script": listed}
        case ScriptMethod.TELEPROMPTER:
            if "prompt" in body and "messages" not in body:
                return {**body, "prompt": _written_in(body["prompt"], script)}
            return {**body, "messages": _prompted(items(body.get("messages")), script, way.suffix_tokens)}


def with_some_words(body: JsonObject, way: Scripting) -> JsonObject:
    """A request for which a scenario has no script: a model without words of its own is given a short answer, where it can be."""
    if way.method is not ScriptMethod.TELEPROMPTER:
        return body
    try:
        return with_script(body, _SOME_WORDS, way)
    except ScriptUnsupportedError:
        return body


def with_beginning(body: JsonObject, begins: Sequence[int], way: Scripting) -> JsonObject:
    """A request that makes the model begin its answer with these ids; what follows are its own words, of a teleprompter two that are no JSON.

    Raises:
        NotCarried: it has no place for them.
    """
    listed: list[Json] = list(begins)
    script: JsonObject = {"harmony_script": listed, "harmony_script_then": "model"}
    match way.method:
        case ScriptMethod.NONE | ScriptMethod.DERENDER:
            return body
        case ScriptMethod.VLLM:
            return {**body, "vllm_xargs": {**script, "harmony_script": _as_text(begins)}}
        case ScriptMethod.REFERENCE:
            return body | script
        case ScriptMethod.TELEPROMPTER:
            return with_script(body, (*begins, *_OWN_WORDS), way)


def _as_text(script: Sequence[int]) -> str:
    """What every vLLM takes: 0.11.0 takes no lists in `vllm_xargs`, later ones none outside Chat Completions."""
    return " ".join(map(str, script))


def _prompted(messages: Sequence[Json], script: Sequence[int], trailers: Mapping[str, int]) -> list[Json]:
    last = messages[-1] if messages else None
    role = text(at(last, "role"))
    if role not in trailers:
        raise ScriptUnsupportedError(f"its last message, of the role {role or 'none'}, can not end with a script")
    try:
        end = write_script(script, trailers[role])
    except TeleprompterScriptError as problem:
        raise ScriptUnsupportedError(str(problem)) from None
    if trailers[role] > TRAILER and dumps(end.strip()) != f'"{end.strip()}"':
        raise ScriptUnsupportedError(f"its last message, of the role {role}, is quoted, and that changes the script")
    return [*messages[:-1], {**members(last), "content": _extended(at(last, "content"), end)}]


def _written_in(prompt: Json, script: Sequence[int]) -> Json:
    """A prompt in Harmony, as a text or as ids, with the script at the end of its last whole message."""
    ids = [one for token in items(prompt) if (one := number(token)) is not None]
    written = prompt if isinstance(prompt, str) else decode(ids) if all(map(tokens.is_known, ids)) else ""
    last, mark, begun = written.rpartition(_END)
    if not mark:
        raise ScriptUnsupportedError("its prompt has no message that ends")
    try:
        told = write_script(script, len(encode_with_special_tokens(mark + begun)))
    except TeleprompterScriptError as problem:
        raise ScriptUnsupportedError(str(problem)) from None
    longer = f"{last}{told}{mark}{begun}"
    return longer if isinstance(prompt, str) else [*encode_with_special_tokens(longer)]


def _extended(content: Json, end: str) -> Json:
    if isinstance(content, str):
        return content + end
    parts = items(content)
    if not parts or not isinstance(said := at(parts[-1], "text"), str):
        raise ScriptUnsupportedError("the content of its last message does not end with text")
    return [*parts[:-1], {**members(parts[-1]), "text": said + end}]


def as_played(x: Exchange, way: Scripting) -> Exchange:
    """The exchange, without its script where the model did not say it.

    A teleprompter is believed by the ids that were returned, else by their number: never by the text, which is what is judged. Nor by the number where a
    grammar may have chosen them: once it lets go of the model, the rest of the script is said, so that the number is often right.
    """
    if way.method is not ScriptMethod.TELEPROMPTER or x.turn is None:
        return x
    if x.script is None:
        return replace(x, script_not_played=_NO_SCRIPT)
    meant = cut_at_stop(x.script)[: x.limit]
    returned, usage = x.turn.output_ids, x.turn.usage
    told = (
        len(cut_at_stop(returned)) if returned is not None else usage.completion_tokens if usage is not None else None
    )
    differs = returned is not None and cut_at_stop(returned) != meant[: len(returned)]
    is_held = returned is None and any(at(x.chat_request, name) for name in way.grammar_members)
    uncounted = int(returned is None and not way.counts_stop and ends_a_turn(meant))
    was_played = not differs and not is_held and (told in (None, len(meant) - uncounted) or x.meets_stop_string)
    return x if was_played else _without_script(x)


def settled(series: Series) -> Series:
    """The series, its streams without ids only played where the same request, unstreamed, was.

    What a teleprompter says once a grammar lets go of it is said in its place, so that the number of tokens is often right although they are not.
    """
    exchanges = dict(series.exchanges)
    for whole, streamed in whole_and_streamed(series):
        x = exchanges[streamed]
        if exchanges[whole].script_not_played != _UNPLAYED or x.script is None:
            continue
        if x.turn is None or x.turn.output_ids is None:
            exchanges[streamed] = _without_script(x)
    return replace(series, exchanges=exchanges)


def is_unproven(x: Exchange, way: Scripting) -> bool:
    """Whether the number of its tokens alone says that a script was played, where a grammar may have made the model say something else of that length.

    A stream is settled by the whole answer to the same request, see `settled`.
    """
    if way.method is not ScriptMethod.TELEPROMPTER or x.script is None or x.api == CHAT_COMPLETIONS.name:
        return False
    is_held = any(at(x.chat_request, name) for name in ("tools", "response_format"))
    is_shown = x.turn is None or x.turn.output_ids is not None
    is_of_a_whole = x.step.partition(STREAMED)[1] != ""
    return is_held and not is_shown and not is_of_a_whole


def in_chat(x: Exchange, asks_for_ids: Collection[str]) -> Exchange:
    """The same request for Chat Completions, which shows ids where these members ask for them."""
    body: JsonObject = {**members(x.chat_request), "stream": False, **dict.fromkeys(asks_for_ids, True)}
    body.pop("stream_options", None)
    asked = Request(path=CHAT, body=dumps(body).encode("utf-8", "backslashreplace"))
    return replace(x, api=CHAT_COMPLETIONS.name, request=asked, response=None, failure=None)


def as_proven(x: Exchange, shown: Exchange, way: Scripting) -> Exchange:
    """The exchange, without its script unless the same request was answered over Chat Completions, and the model said its script there."""
    is_played = shown.turn is not None and as_played(shown, way).script is not None
    return x if is_played else _without_script(x)


def _without_script(x: Exchange) -> Exchange:
    return replace(x, script=None, expected=None, script_not_played=_UNPLAYED)


_NO_SCRIPT = "the request carried no script, and a teleprompter has no words of its own"
_UNPLAYED = "the model said something else than its script, as where the server holds its output to a grammar"
