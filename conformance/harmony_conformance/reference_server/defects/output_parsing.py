"""Defects of output parsing: wrong headers, lost or misplaced messages, errors of the model reported as the client's."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, pairwise

from harmony_conformance.reference_server.defects.changes.body import is_json
from harmony_conformance.reference_server.defects.changes.events import (
    FINAL,
    as_text,
    buffer_calls,
    buffer_messages,
    by_header,
    dropping,
    headed,
    is_call,
    is_reasoning,
    opening,
    raising,
    showing_raw,
    without_markers,
)
from harmony_conformance.reference_server.defects.stages import Defect, OnClientCapabilities, OnEvents
from harmony_conformance.reference_server.model.output_header import CHANNELS, OutputHeader
from harmony_conformance.reference_server.model.output_parser import (
    MessageEnd,
    MessageStart,
    OutputEvent,
    SkippedHeader,
    TextBytes,
)
from harmony_conformance.reference_server.requests.errors import ApiError, server_failure
from harmony_ref import tokens


def _is_preamble(header: OutputHeader) -> bool:
    return header.channel == "commentary" and not is_call(header)


def _is_text_without_markup(header: OutputHeader) -> bool:
    return not header.complete


def _malformed_fails(text: str, closed: MessageEnd) -> str:
    if closed.ids and not is_json(text):
        raise server_failure(f"error parsing tool call: raw='{text}', err={_NOT_JSON}")
    return text


def _cut_fails(text: str, closed: MessageEnd) -> str:
    if closed.hit_token_limit and not is_json(text):
        raise server_failure(f"error parsing tool call: raw='{text}', err=unexpected end of JSON input")
    return text


def _malformed_is_client_error(text: str, _closed: MessageEnd) -> str:
    if not is_json(text):
        raise ApiError("Failed to parse tool call arguments as JSON", code="tool_use_failed")
    return text


def _numbers_through_floats(text: str, _closed: MessageEnd) -> str:
    return json.dumps(json.loads(text, parse_int=float)) if is_json(text) else text


def _unparsed(events: Iterator[OutputEvent]) -> Iterator[OutputEvent]:
    """Return the whole output, headers included, as one final message without special tokens."""
    yield MessageStart(header=FINAL, ids=())
    yield from (as_text(event, without_markers) for event in events)
    yield MessageEnd()


def _raw_unfinished_header(events: Iterator[OutputEvent]) -> Iterator[OutputEvent]:
    for event in events:
        if isinstance(event, SkippedHeader) and event.ids:
            yield MessageStart(header=FINAL, ids=())
            yield as_text(event, tokens.decode_bytes)
            yield MessageEnd()
        else:
            yield event


def _swallowing_start(events: Iterator[OutputEvent]) -> Iterator[OutputEvent]:
    """Append the next header, markers included, and its text to a message without `<|end|>`."""
    swallowed = False
    for event, following in pairwise(chain(events, (None,))):
        if isinstance(event, MessageEnd) and not event.ids and isinstance(following, MessageStart):
            swallowed = True
        elif swallowed and isinstance(event, MessageStart):
            swallowed = False
            yield as_text(event, tokens.decode_bytes)
        elif event is not None:
            yield event


def _first_of_each(events: Iterator[OutputEvent]) -> Iterator[OutputEvent]:
    channels: set[str | None] = set()

    def is_repeated(opened: MessageStart) -> bool:
        is_known = opened.header.channel in channels and not is_call(opened.header)
        channels.add(opened.header.channel)
        return is_known or _is_preamble(opened.header)

    return dropping(is_repeated)(events)


def _one_analysis(events: Iterator[OutputEvent]) -> Iterator[OutputEvent]:
    count = 0
    for event in events:
        count += isinstance(event, MessageStart)
        if count > 2:  # noqa: PLR2004 - reasoning and final, as that server had it
            raise ApiError(f"Expected 2 output messages (reasoning and final), but got {count}.")
        yield event


def _each_token_decoded_alone(events: Iterator[OutputEvent]) -> Iterator[OutputEvent]:
    for event in events:
        if isinstance(event, TextBytes):
            yield replace(event, data=event.data.decode("utf-8", "replace").encode())
        else:
            yield event


def _whole_header(opened: MessageStart) -> str:
    return tokens.decode(opened.ids)


def _has_doubled_channel(opened: MessageStart) -> bool:
    return opened.ids.count(tokens.CHANNEL) > 1 and opened.header.recipient is not None


def _is_foreign_call(opened: MessageStart) -> bool:
    namespace, dot, _name = (opened.header.recipient or "").partition(".")
    return bool(dot) and namespace != "functions"


def _has_recipient_in_role(opened: MessageStart) -> bool:
    before, marker, _after = _whole_header(opened).partition("<|channel|>")
    return bool(marker) and "to=" in before and is_call(opened.header)


def _glued_channel(header: OutputHeader) -> OutputHeader:
    return replace(header, recipient=f"{header.recipient}<|channel|>{header.channel}")


def _last_name_part(header: OutputHeader) -> OutputHeader:
    return replace(header, recipient="functions." + (header.recipient or "").rpartition(".")[2])


def _called_on_analysis(opened: MessageStart) -> bool:
    return is_call(opened.header) and opened.header.channel == "analysis"


def _header_failure(opened: MessageStart) -> ApiError:
    word = next((word for word in _whole_header(opened).split() if word.startswith("to=")), "")
    return server_failure(f'unexpected tokens remaining in message header: Some("{word}")')


def _text_after_end_fails(events: Iterator[OutputEvent]) -> Iterator[OutputEvent]:
    ended = False
    for event in events:
        if ended and isinstance(event, MessageStart) and event.ids[0] != tokens.START:
            raise server_failure(f"Unexpected token {event.ids[0]} while expecting start token {tokens.START}")
        ended = isinstance(event, MessageEnd) and event.ids == (tokens.END,)
        yield event


_NO_MARKUP = "Unexpected EOS while waiting for message header to complete"
_NOT_JSON = "invalid character looking for beginning of value"
_NO_CALLS = "Tool choice is none, but model called a tool"


def _has_unknown_channel(header: OutputHeader) -> bool:
    is_for_user = header.role == "assistant" and header.recipient is None
    return header.complete and is_for_user and header.channel not in CHANNELS


DEFECTS = (
    Defect(
        "doubled-recipient-500",
        "A header that names its recipient twice fails with a 500, or ends the stream with an error.",
        OnEvents(opening(raising(lambda opened: _whole_header(opened).count("to=") > 1, _header_failure))),
        ("V01",),
    ),
    Defect(
        "text-after-end-500",
        "Text directly after `<|end|>` fails with a 500, `Unexpected token … while expecting start token`.",
        OnEvents(_text_after_end_fails),
        ("V02",),
    ),
    Defect(
        "no-markup-500",
        "An answer without any channel markup fails with a 500.",
        OnEvents(opening(raising(by_header(_is_text_without_markup), lambda _: server_failure(_NO_MARKUP)))),
        ("L03",),
    ),
    Defect(
        "channel-in-tool-name",
        "A doubled channel in a call's header becomes part of the tool's name.",
        OnEvents(opening(headed(_has_doubled_channel, _glued_channel))),
        ("V04", "O01"),
    ),
    Defect(
        "headless-output-dropped",
        "Output without `<|message|>` is dropped: empty answer, finish reason `stop`, tokens counted.",
        OnEvents(dropping(by_header(_is_text_without_markup))),
        ("V06",),
    ),
    Defect(
        "raw-header-when-cut",
        "Output cut inside a header is returned as content, raw markers included.",
        OnEvents(_raw_unfinished_header),
        ("V07",),
    ),
    Defect(
        "calls-dropped",
        "Calls are dropped without an error: empty answer, finish reason `stop`.",
        OnEvents(dropping(by_header(is_call))),
        ("V10", "V12"),
    ),
    Defect(
        "several-analyses-400",
        "More than one analysis and one final message fails: `Expected 2 output messages`.",
        OnEvents(_one_analysis),
        ("V24",),
    ),
    Defect(
        "none-returns-calls",
        "A call is returned although `tool_choice` is `none`.",
        OnClientCapabilities(lambda offer: replace(offer, accepts_calls=True)),
        ("V36", "O12"),
    ),
    Defect(
        "malformed-arguments-500",
        "Arguments that are not JSON fail the request with a 500, `error parsing tool call`.",
        OnEvents(buffer_calls(_malformed_fails)),
        ("O02",),
    ),
    Defect(
        "cut-arguments-500",
        "A token limit reached inside arguments fails with a 500 instead of finish reason `length`.",
        OnEvents(buffer_calls(_cut_fails)),
        ("O05",),
    ),
    Defect(
        "malformed-arguments-400",
        "Arguments that are not JSON are reported as the client's error, `tool_use_failed`.",
        OnEvents(buffer_calls(_malformed_is_client_error)),
        ("P02",),
    ),
    Defect(
        "malformed-arguments-dropped",
        "A call whose arguments are not JSON is dropped without an error.",
        OnEvents(buffer_calls(lambda text, _closed: text if is_json(text) else None)),
        ("S03", "M02"),
    ),
    Defect(
        "arguments-through-floats",
        "Arguments are decoded and encoded again: integers become floats, and large ones lose digits.",
        OnEvents(buffer_calls(_numbers_through_floats)),
    ),
    Defect(
        "output-unparsed",
        "Output is decoded without special tokens and not parsed: `analysis…assistantfinal…` in content.",
        OnEvents(_unparsed),
        ("T01", "M09", "M15"),
    ),
    Defect(
        "raw-call-in-content",
        "A call is returned as content with all its markers.",
        OnEvents(showing_raw(by_header(is_call), tokens.decode_bytes)),
        ("M03", "R01"),
    ),
    Defect(
        "call-on-analysis-as-text",
        "A call on the analysis channel is returned as text, without its markers.",
        OnEvents(showing_raw(_called_on_analysis, without_markers)),
        ("M07",),
    ),
    Defect(
        "recipient-in-role-as-text",
        "A call with its recipient before the channel is returned as text, without its markers.",
        OnEvents(showing_raw(_has_recipient_in_role, without_markers)),
        ("S04",),
    ),
    Defect(
        "untyped-call-lost",
        "A call whose header has no `<|constrain|>` is lost.",
        OnEvents(dropping(lambda opened: is_call(opened.header) and tokens.CONSTRAIN not in opened.ids)),
        ("S01", "S06"),
    ),
    Defect(
        "dotted-name-cut",
        "Only the last part of a function name with dots is returned.",
        OnEvents(opening(headed(by_header(is_call), _last_name_part))),
        ("S02",),
    ),
    Defect(
        "start-inside-reasoning",
        "After a missing `<|end|>`, the next header, markers included, and its text become part of the message.",
        OnEvents(_swallowing_start),
        ("P12",),
    ),
    Defect(
        "only-first-messages-kept",
        "Only the first analysis and the first final message are returned; other messages are lost.",
        OnEvents(_first_of_each),
        ("R03",),
    ),
    Defect(
        "preamble-dropped",
        "Commentary for the user is dropped from the answer.",
        OnEvents(dropping(by_header(_is_preamble))),
        ("V31",),
    ),
    Defect(
        "final-as-reasoning",
        "The final answer arrives as reasoning and the content stays empty.",
        OnEvents(
            opening(
                headed(
                    by_header(lambda header: header.channel == "final"),
                    lambda header: replace(header, channel="analysis"),
                )
            )
        ),
        ("O21",),
    ),
    Defect(
        "cut-reasoning-lost",
        "Reasoning that the token limit cut is not returned.",
        OnEvents(
            buffer_messages(is_reasoning, lambda whole, closed: [] if closed.hit_token_limit else [*whole, closed])
        ),
        ("V39",),
    ),
    Defect(
        "split-characters-broken",
        "Each token is decoded alone: characters that span tokens become U+FFFD.",
        OnEvents(_each_token_decoded_alone),
    ),
    Defect(
        "foreign-call-400",
        "A call to a tool outside the namespace `functions` is reported as the client's error.",
        OnEvents(opening(raising(_is_foreign_call, lambda _: ApiError(_NO_CALLS, code="tool_use_failed")))),
        ("P01",),
    ),
    Defect(
        "unknown-channel-dropped",
        "A message on an unknown channel, or without a channel, is dropped without an error.",
        OnEvents(dropping(by_header(_has_unknown_channel))),
        ("P12",),
    ),
    Defect(
        "typed-final-dropped",
        "The content type of a final message is parsed as its recipient, and the answer is dropped as a call.",
        OnEvents(dropping(by_header(lambda header: header.channel == "final" and header.content_type is not None))),
    ),
)
