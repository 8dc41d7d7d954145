"""The same question put to the library and to this package; both answers in the oracle's form."""

import json

import pytest

from harmony_ref import (
    Conversation,
    Delta,
    HarmonyError,
    Message,
    MessageError,
    ParseError,
    RenderError,
    Role,
    StreamParser,
    json_schema_to_typescript,
    parse,
    render,
    render_conversation,
    render_conversation_for_completion,
    render_conversation_for_training,
    tokens,
)

SHORT_RUN = 2
"""What counts as long white space here, so that short texts have it."""

RENDERERS = {
    "conversation": render_conversation,
    "completion": render_conversation_for_completion,
    "training": render_conversation_for_training,
}


def ours(function, *arguments, render_error="RuntimeError", **options):
    """Our answer, our errors under the names of the library's."""
    try:
        return {"ok": function(*arguments, **options)}
    except MessageError as error:
        return {"err": ["ValueError", str(error)]}
    except RenderError as error:
        return {"err": [render_error, str(error)]}
    except HarmonyError as error:
        return {"err": ["HarmonyError", str(error)]}


def role_or_none(word):
    return None if word is None else Role(word)


def one_message(oracle, case):
    message, note = case
    mine = ours(lambda: render(Message.from_dict(message), conversation_has_function_tools=note))
    yield "render", oracle.render(message, note), mine


def conversation(oracle, case):
    """All three ways to render it, dropping reasoning or not."""
    messages, role, auto_drop = case
    for mode in RENDERERS:
        theirs = oracle.render_all(mode, messages, auto_drop, role)
        yield f"{mode}, auto_drop {auto_drop}", theirs, our_rendering(mode, messages, auto_drop, role)


def our_rendering(mode, messages, auto_drop, role):
    arguments = [Role(role)] if mode == "completion" else []
    return ours(
        lambda: RENDERERS[mode](
            # Given no configuration, the library's binding drops nothing.
            Conversation.from_dict({"messages": messages}),
            *arguments,
            auto_drop_analysis=bool(auto_drop),
        ),
        render_error="HarmonyError" if mode == "completion" else "RuntimeError",
    )


def typescript(oracle, schema):
    yield "typescript", oracle.typescript(schema), ours(json_schema_to_typescript, schema)


def completion(oracle, case):
    run, role = case
    for strict in (True, False):
        mine = ours(lambda: [message.to_dict() for message in parse(run, role_or_none(role), strict=strict)])  # noqa: B023
        yield f"strict {strict}", oracle.parse(run, role, strict), mine


def stream(oracle, case):
    """Every attribute after every token; and what is found when the tokens are fed in runs."""
    run, role, lengths = case
    for strict in (True, False):
        theirs = trace_of_library(oracle.parser(role, strict), run)
        mine = trace_of_ours(StreamParser(role_or_none(role), strict=strict), run)
        for place, (expected, actual) in enumerate(zip(theirs, mine, strict=True)):
            yield f"strict {strict}, after token {place}", expected, actual
        one_by_one = found_in(StreamParser(role_or_none(role), strict=strict), run, [1] * len(run))
        in_runs = found_in(StreamParser(role_or_none(role), strict=strict), run, lengths)
        yield f"strict {strict}, fed in runs of {lengths}", one_by_one, in_runs


def encoding(oracle, text):
    yield "ordinary", oracle.inner.encode(text, []), tokens.encode(text)
    yield "as text of a message", oracle.inner.encode(text, []), tokens.encode_text(text)
    for allowed in (list(tokens.SPECIAL_TOKENS), ["<|start|>", "<|end|>"]):
        theirs = oracle.inner.encode(text, allowed)
        yield f"{len(allowed)} special tokens", theirs, tokens.encode_with_special_tokens(text, allowed=set(allowed))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tokens, "LONGEST_PIECE", SHORT_RUN)
            mine = tokens.encode_with_special_tokens(text, allowed=set(allowed))
        yield f"{len(allowed)} special tokens, white space encoded apart", theirs, mine


def decoding(oracle, run):
    yield "decode_utf8", oracle.answer(oracle.inner.decode_utf8, run), ours(tokens.decode_utf8, run)
    theirs = oracle.answer(lambda: bytes(oracle.inner.decode_bytes(run)))
    yield "decode_bytes", theirs, ours(tokens.decode_bytes, run)


def trace_of_library(parser, run):
    for step in [*run, None, None]:
        error = None
        try:
            parser.process_eos() if step is None else parser.process(step)
        except Exception as caught:  # noqa: BLE001 - whatever it raises is the answer
            error = str(caught)
        yield {
            "token": step,
            "error": error,
            "state": json.loads(parser.state),
            "role": parser.current_role,
            "channel": parser.current_channel,
            "recipient": parser.current_recipient,
            "content_type": parser.current_content_type,
            "content": parser.current_content,
            "delta": parser.last_content_delta,
            "messages": json.loads(parser.messages),
            "tokens": parser.tokens,
        }


def trace_of_ours(parser, run):
    for step in [*run, None, None]:
        error = None
        try:
            parser.finish() if step is None else parser.process(step)
        except ParseError as caught:
            error = str(caught)
        yield {
            "token": step,
            "error": error,
            "state": parser.state_data,
            "role": parser.current_role,
            "channel": parser.current_channel,
            "recipient": parser.current_recipient,
            "content_type": parser.current_content_type,
            "content": parser.current_content,
            "delta": parser.last_content_delta,
            "messages": [message.to_dict() for message in parser.messages],
            "tokens": list(parser.tokens),
        }


def found_in(parser, run, lengths):
    """Events and errors in order, and where the parser ends; what follows a refused token is fed again."""
    found = []
    place = 0
    for length in [*lengths, len(run)]:
        end = min(place + length, len(run))
        while place < end:
            try:
                found += parser.feed(run[place:end])
                place = end
            except ParseError as error:
                found += [*error.events, (type(error), str(error), error.position, error.state, error.expected)]
                place = error.position + 1
    try:
        found += parser.finish()
    except ParseError as error:
        found += [*error.events, (type(error), str(error), error.position, error.state, error.expected)]
    return merged(found), parser.state_data, parser.current_role, parser.messages, parser.tokens


def merged(found):
    """With neighbouring deltas joined, which is all that splitting may change."""
    result = []
    for event in found:
        if isinstance(event, Delta) and result and isinstance(result[-1], Delta):
            result[-1] = Delta(text=result[-1].text + event.text, header=event.header)
        else:
            result.append(event)
    return result
