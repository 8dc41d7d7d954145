"""The clause that fits a failure, if the check's own is about another part of an answer or of a prompt."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from harmony_conformance.apis.text_fields import FieldKind
from harmony_conformance.checks.helpers.counted_pairs import CountedPair
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.expected_output import ExpectedOutput
from harmony_conformance.json_value import Json, items, value_at
from harmony_conformance.prompts.expected_parts import INSTRUCTIONS_HEADING, PromptMessage, Retention, expected_parts
from harmony_conformance.prompts.request_members import can_be_called, has_allowed_tools
from harmony_ref import decode, tokens
from harmony_ref.explanation import Part, Problem
from harmony_ref.explanation.divergence import Difference
from harmony_ref.explanation.message_difference import difference_of_contents

ANALYSIS, FINAL, PREAMBLES = "harmony#analysis", "harmony#final", "harmony#preambles"
CALLS, FORM = "harmony#receiving-calls", "harmony#message-format"
ARGUMENTS, TOOL_CALL, REASONING = "chat#arguments", "chat#tool-call", "raw-cot#output"
CALL_ID, CALL_TYPE, CALL_NAME = "chat#call-id", "chat#call-type", "chat#call-name"
_PEOPLE = ("user", "assistant")
_RECIPIENT = re.compile(r"to= ?([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>([^\s<]*)")
_WORD_BEHIND_CHANNEL = re.compile(r"<\|channel\|>[^\s<]+ +(?!to=)[^\s<]")
"""A word there is a recipient to the official library: the message is no preamble."""
_CHANNELS = {"analysis": ANALYSIS, "commentary": PREAMBLES, "final": FINAL}

OF_FIELDS: Mapping[FieldKind, str] = MappingProxyType(
    {
        FieldKind.CONTENT: FINAL,
        FieldKind.REASONING: REASONING,
        FieldKind.NAME: CALL_NAME,
        FieldKind.ARGUMENTS: ARGUMENTS,
        FieldKind.INPUT: ARGUMENTS,
        FieldKind.OTHER: FORM,
    }
)
"""The clauses that say what a field holds."""

_OF_PROMPT_TEXTS = {
    "instructions": "harmony#developer",
    "developer": "harmony#developer",
    "system": "harmony#developer",
    "result": "harmony#tool-messages",
    "reasoning": "harmony#keep-reasoning",
    "thought": "harmony#keep-reasoning",
    "preamble": PREAMBLES,
    "answer": FINAL,
    "arguments": ARGUMENTS,
    "description": "harmony#tools",
    "parameter": "harmony#tools",
    "enum": "harmony#tools",
}
_OF_MARKERS = "harmony#special-tokens"


def clause_of_counted_text(pair: CountedPair) -> str:
    """Return the clause on a text in the prompt, by the last word of its step. Injected markers have their own clause."""
    if pair.prompt_growth == pair.quoted_growth:
        return "harmony#tool-messages"
    if pair.longer.step.startswith("marked") and pair.prompt_growth:
        return _OF_MARKERS
    return _OF_PROMPT_TEXTS.get(pair.longer.step.rpartition(" ")[2], "chat#messages")


_OF_PARTS: Mapping[Part, str] = MappingProxyType(
    {
        Part.IDENTITY: "harmony#identity",
        Part.CUTOFF: "harmony#dates",
        Part.DATE: "harmony#dates",
        Part.EFFORT: "harmony#system",
        Part.FUNCTIONS_NOTE: "harmony#channels-of-calls",
        Part.INSTRUCTIONS: "harmony#developer-form",
        Part.TOOLS: "harmony#tools",
        Part.RESPONSE_FORMATS: "harmony#response-formats",
        Part.ROLE: "harmony#roles",
    }
)
_OF_REASONING = MappingProxyType(
    {Problem.REASONING_DROPPED: "harmony#keep-reasoning", Problem.REASONING_KEPT: "harmony#drop-reasoning"}
)


def clause_of_difference(difference: Difference) -> str:
    """Return the clause on what differs in a prompt: its reasoning, or a part. The form of messages without one."""
    return _OF_REASONING.get(difference.problem) or _OF_PARTS.get(difference.part, FORM)


_OF_CHANNELS = MappingProxyType({"final": FINAL, "commentary": PREAMBLES, "analysis": "harmony#keep-reasoning"})
_MESSAGES = "chat#messages"


def clause_of_contrast(one: PromptMessage | None, other: PromptMessage | None, request: Json) -> str:
    """Return the clause on what differs in two prompts of one request, by their first different messages."""
    thoughts = [message for message in (one, other) if message is not None and message.channel == "analysis"]
    if len(thoughts) == 1:
        texts = {part.text for part in expected_parts(request) if part.retention is Retention.ABSENT}
        problem = Problem.REASONING_KEPT if thoughts[0].content in texts else Problem.REASONING_DROPPED
        return _OF_REASONING[problem]
    if one is None or other is None:
        return _MESSAGES
    if one.role != other.role:
        texts_of = [message.content.removeprefix(INSTRUCTIONS_HEADING).strip() for message in (one, other)]
        is_same = all(texts_of) and (texts_of[0] in texts_of[1] or texts_of[1] in texts_of[0])
        return "harmony#roles" if is_same else _MESSAGES
    if one.role == "tool":
        return "harmony#tool-messages"
    if one.header != other.header:
        form = CALLS if one.recipient != other.recipient else FORM
        return form if one.content == other.content else _MESSAGES
    if one.role in ("system", "developer"):
        part = difference_of_contents(one.content, other.content, one.role).part
        if part is Part.TOOLS and one.role == "system":
            return "harmony#built-in-tools"
        return "harmony#developer" if part is Part.INSTRUCTIONS else _OF_PARTS.get(part, FORM)
    if one.role == "assistant":
        return ARGUMENTS if one.recipient is not None else _OF_CHANNELS.get(one.channel or "", FORM)
    return _MESSAGES


def clause_of_loss(x: Exchange) -> str:
    """Return the clause on what an empty answer lacks: the answer, a call, or a preamble."""
    owed = x.expectation.required_output if x.expectation is not None else x.expected_output
    if owed is not None and (owed.user_texts or owed.calls):
        return clause_of_owed(owed)
    written = [clause for clause, body in _messages(x) if clause != ANALYSIS and body.strip()]
    return next((one for one in (FINAL, CALLS, *written) if one in written), FORM if x.output.ids else "chat#message")


def clause_of_owed(owed: ExpectedOutput) -> str:
    """Return the clause on the most important part of an output: the answer, then a call, then a preamble."""
    if "".join(owed.finals).strip():
        return FINAL
    return TOOL_CALL if owed.calls else PREAMBLES


def clause_of_content(x: Exchange, output: ExpectedOutput, content: str) -> str:
    """Return the clause on the text for the user that a content lacks, else on the text that it should not have."""
    for texts, clause in ((output.finals, FINAL), (output.preambles, PREAMBLES)):
        if any(text.strip() not in content for text in texts):
            return clause
    more = content
    for text in output.user_texts:
        more = more.replace(text.strip(), "", 1)
    return clause_of_text(x, more) if more.strip() else FINAL


def clause_of_text(x: Exchange, text: str) -> str:
    """Return the clause on the message of the output that has a text, by its header. Without such a message: the form of messages."""
    wanted = text.strip()
    return next((clause for clause, body in _messages(x) if wanted and wanted in body), FORM)


def clause_of_forbidden_call(x: Exchange, name: str) -> str:
    """Return the clause that forbids a call, from the part of the request that does."""
    request = x.chat_request
    if name in _PEOPLE and f"to={name}" in decode(x.output.ids or x.script or ()):
        return PREAMBLES
    if not items(value_at(request, "tools")) or value_at(request, "tool_choice") == "none":
        return "chat#tool-choice"
    if not can_be_called(request, name):
        return "chat#allowed-tools" if has_allowed_tools(request) else "chat#tool-choice"
    return "chat#parallel-tool-calls" if value_at(request, "parallel_tool_calls") is False else CALLS


def _messages(x: Exchange) -> Iterator[tuple[str, str]]:
    """Yield the messages of the output: the clause on the recipient or the channel in the header, and the text."""
    for header, body in _split(x.output.ids or x.script or ()):
        recipients, channels = _RECIPIENT.findall(header), _CHANNEL.findall(header)
        if recipients and recipients[0] not in _PEOPLE:
            yield CALLS, body
        elif len(channels) == 1:
            clause = _CHANNELS.get(channels[0], FORM)
            yield FORM if clause == PREAMBLES and _WORD_BEHIND_CHANNEL.search(header) else clause, body
        else:
            yield FORM, body


def _split(ids: Sequence[int]) -> Iterator[tuple[str, str]]:
    """Yield header and text of each message. A message without `<|message|>` is a text without a header."""
    header: tuple[int, ...] | None = None
    start = 0
    for place, token in enumerate((*ids, tokens.END)):
        if token == tokens.MESSAGE and header is None:
            header, start = tuple(ids[start:place]), place + 1
        elif token in tokens.STOP_TOKENS:
            yield decode(header or ()), decode(tuple(ids[start:place]))
            header, start = None, place + 1
