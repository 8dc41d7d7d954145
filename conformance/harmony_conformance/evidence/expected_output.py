"""The expected response for an emitted completion: its messages, sorted by the members of a chat message that must have them.

There are two sources. A script comes with a hand-written expectation. Other emitted ids are parsed by the reference if they are well-formed.
A malformed completion without a hand-written expectation has no expected response.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harmony_conformance.evidence.emitted_ids import ends_a_turn, strip_endoftext
from harmony_conformance.json_value import Json, JsonObject, items, members, text, value_at
from harmony_ref import HarmonyError, Role, decode, parse, text_of, tokens

FUNCTIONS_PREFIX = "functions."
_ANALYSIS = 35644  # the word `analysis` is one token
_HEADER_WORDS = 3  # the most tokens of role and channel together


@dataclass(frozen=True, kw_only=True)
class FunctionCall:
    """A function call as the model emitted it: the name without `functions.`, the arguments as text."""

    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True)
class ExpectedOutput:
    """The texts and calls of a completion, in the order of emission.

    Attributes:
        reasoning: The texts of the analysis channel.
        preambles: The texts of the commentary channel without recipient.
        finals: The texts of the final channel.
        calls: The function calls.
        finish_reason: The finish reason, or None if several are correct.
    """

    reasoning: tuple[str, ...] = ()
    preambles: tuple[str, ...] = ()
    finals: tuple[str, ...] = ()
    calls: tuple[FunctionCall, ...] = ()
    finish_reason: str | None = None

    @property
    def user_texts(self) -> tuple[str, ...]:
        """The texts for the user: preambles, then finals."""
        return (*self.preambles, *self.finals)


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """The hand-written expectation for the response to a script.

    Attributes:
        required_output: The required texts and calls, each in its member.
        required_texts: Texts of broken output, required either as content or as reasoning.
        optional_calls: Optional calls.
        forbidden_texts: Texts that no member may contain.
        finish_reason: The allowed finish reasons. Empty allows any.
        is_well_formed: True for well-formed output: the response must contain nothing but `required_output`.
    """

    required_output: ExpectedOutput
    required_texts: tuple[str, ...] = ()
    optional_calls: tuple[FunctionCall, ...] = ()
    forbidden_texts: tuple[str, ...] = ()
    finish_reasons: tuple[str, ...] = ()
    is_well_formed: bool = True


def read_expectation(row: Json) -> Expectation:
    """Read a hand-written expectation from JSON.

    For well-formed output: `reasoning`, `preambles`, `finals` (arrays of texts), `calls` (`{name, arguments}`) and `finish`.
    For broken output: `must` (as above, with `anywhere`), `may` (with `calls`), `never` (an array of texts) and `finish`.
    """
    finish = value_at(row, "finish")
    must = value_at(row, "must") if "must" in members(row) else row
    return Expectation(
        required_output=ExpectedOutput(
            reasoning=_texts(value_at(must, "reasoning")),
            preambles=_texts(value_at(must, "preambles")),
            finals=_texts(value_at(must, "finals")),
            calls=_calls(value_at(must, "calls")),
        ),
        required_texts=_texts(value_at(must, "anywhere")),
        optional_calls=_calls(value_at(row, "may", "calls")),
        forbidden_texts=_texts(value_at(row, "never")),
        finish_reasons=(finish,) if isinstance(finish, str) else _texts(finish),
        is_well_formed=not {"may", "never"} & set(members(row)),
    )


def write_expectation(row: Expectation) -> Json:
    """Return the JSON that `read_expectation` reads."""
    members_of_must = {
        "reasoning": list[Json](row.required_output.reasoning),
        "preambles": list[Json](row.required_output.preambles),
        "finals": list[Json](row.required_output.finals),
        "calls": _call_objects(row.required_output.calls),
        "anywhere": list[Json](row.required_texts),
    }
    must: JsonObject = {name: values for name, values in members_of_must.items() if values}
    finish: JsonObject = (
        {"finish": row.finish_reasons[0] if len(row.finish_reasons) == 1 else list(row.finish_reasons)}
        if row.finish_reasons
        else {}
    )
    if row.is_well_formed:
        return {**must, **finish}
    return {
        "must": must,
        "may": {"calls": _call_objects(row.optional_calls)},
        "never": list(row.forbidden_texts),
        **finish,
    }


def _calls(value: Json) -> tuple[FunctionCall, ...]:
    return tuple(
        FunctionCall(name=text(value_at(call, "name")), arguments=text(value_at(call, "arguments")))
        for call in items(value)
    )


def _call_objects(calls: Sequence[FunctionCall]) -> list[Json]:
    return [{"name": call.name, "arguments": call.arguments} for call in calls]


def parse_output(ids: Sequence[int]) -> ExpectedOutput | None:
    """Parse emitted ids with the reference.

    Return None for malformed ids, an unknown channel or recipient, and a special token inside a text.
    A function name that is empty or contains white space counts as malformed too: parsers split such headers differently.
    """
    ids = strip_endoftext(ids)
    try:
        messages = parse(ids, role=Role.ASSISTANT)
    except HarmonyError:
        return None
    by_channel: dict[str, list[str]] = {channel: [] for channel in _CHANNELS}
    calls: list[FunctionCall] = []
    for message in messages:
        body, channel, recipient = text_of(message), message.channel, message.recipient
        content_type = (message.content_type or "").removeprefix("<|constrain|>")
        if channel not in by_channel or message.author.role is not Role.ASSISTANT or "<|" in content_type:
            return None
        if (
            recipient is not None
            and _FUNCTION_RECIPIENT.fullmatch(recipient)
            and channel != "final"
            and "<|" not in recipient
        ):
            calls.append(FunctionCall(name=recipient.removeprefix(FUNCTIONS_PREFIX), arguments=body))
        elif recipient is None or (channel == "final" and recipient in _JSON):
            by_channel[channel].append(body)
        else:
            return None
    if _has_special_in_text(ids):
        return None
    return ExpectedOutput(
        reasoning=tuple(by_channel["analysis"]),
        preambles=tuple(by_channel["commentary"]),
        finals=tuple(by_channel["final"]),
        calls=tuple(calls),
        finish_reason=_finish(ids, calls),
    )


_PROMPT_END = "<|start|>assistant"
_TYPE = r"(?: ?<\|constrain\|>| )[^\s<=]+"
_CHANNEL = r"<\|channel\|>(?:analysis|commentary|final)"
_TO = r" to=(?!(?:assistant|user)(?:[\s<]|$))[^\s<]+"
_HEADER = re.compile(
    rf"<\|start\|>assistant(?:{_TO}{_CHANNEL}(?:{_TYPE})?|{_CHANNEL}(?:{_TO}(?:{_TYPE})?| ?<\|constrain\|>[^\s<]+)?)"
)
"""The header of an assistant message as the guide describes it. A content type without `<|constrain|>` needs a recipient."""
_CUT_RECIPIENT = r"(?: (?:t|to|to=[^\s<]*)?)?"
_CUT_HEADER = re.compile(
    rf"<\|start\|>(?:assistant{_CUT_RECIPIENT}(?:<\|channel\|>[a-z]*{_CUT_RECIPIENT}(?: ?<\|constrain\|>[^\s<]*| [^\s<]*)?)?)?"
)


def is_malformed(ids: Sequence[int]) -> bool:
    """Return True for ids that the official library refuses, and for those that only its tolerance reads.

    Both have a header with anything beyond role, recipient, channel and content type, or a special token within a text.
    So is a call that ends in `<|return|>`, and an answer that ends in `<|call|>`. A last header that generation was cut in is not malformed.
    So is a message to the assistant or the user: the guide has recipients of calls alone.
    """
    ids = strip_endoftext(ids)
    if not all(map(tokens.is_known, ids)):
        return True
    headers, rest = _headers(ids)
    first, *others = (*headers, rest)
    *whole, last = (f"{_PROMPT_END}{decode(first)}", *map(decode, others))
    is_formed = all(map(_HEADER.fullmatch, whole)) and (not rest or _CUT_HEADER.fullmatch(last))
    return (
        not is_formed
        or _has_special_in_text(ids)
        or _has_the_wrong_end(decode(headers[-1]) if headers else "", ids[-1:])
    )


def _has_the_wrong_end(header: str, end: Sequence[int]) -> bool:
    is_call = "to=" in header
    return (is_call and tuple(end) == (tokens.RETURN,)) or (not is_call and tuple(end) == (tokens.CALL,))


def _headers(ids: Sequence[int]) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
    """Return the tokens of each header before its `<|message|>`, and those of a last one without it."""
    headers: list[tuple[int, ...]] = []
    header: list[int] = []
    inside = False
    for token in ids:
        if inside:
            inside = token not in tokens.STOP_TOKENS
        elif token == tokens.MESSAGE:
            headers.append(tuple(header))
            inside, header = True, []
        else:
            header.append(token)
    return headers, tuple(header)


def called_recipients(ids: Sequence[int]) -> tuple[str, ...]:
    """Return the recipient in each header that has one."""
    headers, _ = _headers(ids)
    found = (_FIRST_RECIPIENT.search(decode(header)) for header in headers)
    return tuple(match[1] for match in found if match is not None)


_FIRST_RECIPIENT = re.compile(r"to=([^\s<]+)")
_CHANNELS = ("analysis", "commentary", "final")
_FUNCTION_RECIPIENT = re.compile(re.escape(FUNCTIONS_PREFIX) + r"\S+")


def possible_function_names(ids: Sequence[int]) -> frozenset[str]:
    """Return all function names that a parser may read in a broken completion.

    These are the texts after `to=` or `to=functions.` up to a special token, cut after any word.
    """
    headers = (match[1].split(" ") for match in _RECIPIENT.finditer(decode(tuple(ids))))
    return frozenset(" ".join(words[:count]) for words in headers for count in range(1, len(words) + 1))


_RECIPIENT = re.compile(r"to=(?:functions\.)?(?!functions\.)([^<\n]{1,200})")


def contains_call(ids: Sequence[int], name: str, arguments: str) -> bool:
    """Return True if the name and the arguments of a call are in the text of a completion, wherever. White space may differ."""
    written = decode(tuple(ids))
    return name in written and "".join(arguments.split()) in "".join(written.split())


def has_texts_in_order(texts: Sequence[str], whole: str) -> bool:
    """Return True if `whole` consists of these texts in order, separated by white space only. A truncated last character may be missing."""
    rest = whole
    for expected in (one.rstrip(_REPLACEMENT) for one in texts):
        rest = rest if expected[:1].isspace() else rest.lstrip()
        form = next((form for form in (expected, expected.strip()) if rest.startswith(form)), None)
        if form is None:
            return False
        rest = rest[len(form) :]
    return not rest.strip(_REPLACEMENT + " \n\t\r")


_REPLACEMENT = "\ufffd"


@dataclass(frozen=True, kw_only=True)
class OutputTokenCounts:
    """The number of emitted tokens by their reader.

    Attributes:
        user_tokens: Those in messages for the user.
        call_tokens: Those in calls of tools.
        reasoning_tokens: Those in messages of the analysis channel.
    """

    user_tokens: int = 0
    call_tokens: int = 0
    reasoning_tokens: int = 0


def count_output_tokens(ids: Sequence[int]) -> OutputTokenCounts:
    """Count the tokens of contents, and those of text without `<|message|>` as text for the user.

    Headers are not counted, nor is a header that generation was cut in.
    """
    shown = called = thought = 0
    header: list[int] = []
    inside = private = calling = False
    for token in ids:
        if token == tokens.MESSAGE and not inside:
            inside = True
            calling = "to=" in decode([other for other in header if not tokens.is_special(other)])
            private = tokens.CHANNEL in header and _ANALYSIS in header
        elif token in tokens.STOP_TOKENS:
            words = sum(1 for other in header if not tokens.is_special(other))
            shown += 0 if inside else max(0, words - _HEADER_WORDS)
            inside, header = False, []
        elif not inside:
            header.append(token)
        elif not tokens.is_special(token):
            thought += private and not calling
            called += calling and not private
            shown += not (calling or private)
    return OutputTokenCounts(user_tokens=shown, call_tokens=called, reasoning_tokens=thought)


def _finish(ids: Sequence[int], calls: Sequence[FunctionCall]) -> str | None:
    if calls and ends_a_turn(ids):
        return "tool_calls"
    return "stop" if ids and ids[-1] == tokens.RETURN else None


_JSON = ("json", "<|constrain|>json")
"""Content types that the reference reads as the recipient of a header without recipient."""


def _has_special_in_text(ids: Sequence[int]) -> bool:
    return any(tokens.is_special(token) and token not in tokens.STOP_TOKENS for token in _content_ids(ids))


def _content_ids(ids: Sequence[int]) -> Iterator[int]:
    inside = False
    for token in ids:
        if inside:
            inside = token not in tokens.STOP_TOKENS
            yield token
        elif token == tokens.MESSAGE:
            inside = True


def _texts(value: Json) -> tuple[str, ...]:
    return tuple(text(item) for item in items(value))
