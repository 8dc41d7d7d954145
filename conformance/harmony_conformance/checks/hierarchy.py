"""Family `hierarchy`: who says what. System and developer messages of the API are the developer's instructions in Harmony."""

from __future__ import annotations

import re
from calendar import monthrange, timegm
from collections.abc import Iterator

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import at, canonical, dumps, objects_in, text
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, SHOULD, Finding, check, condition, variant
from harmony_conformance.judge.history_conditions import gives_instructions
from harmony_conformance.prompts.prompt_parser import INSTRUCTIONS, PartKind, PromptPart
from harmony_conformance.prompts.tool_declarations import declares_functions, official_spelling
from harmony_conformance.redactable_text import RedactableText, shorten

_IDENTITY = "You are ChatGPT, a large language model trained by OpenAI."


@check(MUST, spec="harmony#developer", when=(on.is_conversation, on.prompt_is_known, gives_instructions))
def instructions_reach_the_model(x: Exchange) -> Iterator[Finding]:
    """Every system and developer message of the request stands in the prompt, under `# Instructions` of a developer message, in order.

    Templates keep only the first of them, or drop those that are not first, without a word (defects J05, V31).
    """
    messages = x.prompt_messages
    developer = "\n".join(m.content for m in messages if m.role == "developer")
    system = "\n".join(m.content for m in messages if m.role == "system")
    position = 0
    sent = [part for part in x.expected_parts if part.kind is PartKind.INSTRUCTIONS and part.text.strip()]
    for part in sent:
        found = developer.find(part.text, position)
        if found >= 0:
            position = found + len(part.text)
        elif part.text in developer:
            yield Finding(
                message="instructions stand in another order than they were sent",
                at=part.where,
                expected="the order of the request",
                actual=shorten(part.text),
            )
        elif part.text in system:
            yield variant("instructions stand in the system message", where=part.where)
        else:
            holder = next((m.role for m in messages if part.text in m.content), None)
            yield Finding(
                message="instructions of the request are not in a developer message",
                at=part.where,
                expected=RedactableText("developer: # Instructions … {}", shorten(part.text)),
                actual=RedactableText("they stand in a {} message", holder)
                if holder
                else "they are nowhere in the prompt",
            )
    instructions = "\n".join(m.content.partition("# Tools\n")[0] for m in messages if m.role == "developer")
    twice = next((part for part in sent if _more_often(part.text, instructions, sent)), None)
    if twice is not None:
        yield Finding(
            message="instructions stand in the prompt more often than they were sent",
            at=twice.where,
            expected="once",
            actual=RedactableText("{} times", instructions.count(twice.text)),
        )
    holding = [m for m in messages if m.role == "developer" and any(part.text in m.content for part in sent)]
    bare = next((m for m in holding if "# Instructions" not in m.content), None)
    if bare is not None:
        yield Finding(
            message="the developer message has no `# Instructions` section",
            at="developer message",
            expected="# Instructions",
            actual=shorten(bare.content),
        )


def _more_often(said: str, shown: str, sent: list[PromptPart]) -> bool:
    return shown.count(said) > sum(part.text.count(said) for part in sent)


@check(MUST, spec="harmony#identity", when=(on.is_conversation, on.prompt_is_known))
def identity_is_kept(x: Exchange) -> Iterator[Finding]:
    """The system message begins with the identity the model was trained with; another identity belongs into the instructions."""
    system = x.system_message
    if system is not None and not system.content.startswith(_IDENTITY):
        begin = shorten(system.content.partition("\n")[0])
        yield Finding(
            message="the system message has another identity", at="system message", expected=_IDENTITY, actual=begin
        )


_NOTE = "Calls to these tools must go to the commentary channel: 'functions'."
_SYSTEM = re.compile(
    r"You are ChatGPT, a large language model trained by OpenAI\.\n"
    r"Knowledge cutoff: 20\d{2}-[01]\d(?:-\d{2})?"
    r"(?:\nCurrent date: 20\d{2}-[01]\d-[0-3]\d)?"
    r"(?:\n\nReasoning: (?:low|medium|high))?"
    r"(?:\n\n# Tools\n\n[\s\S]*?)?"
    r"(?:\n\n# Valid channels: analysis, (?:commentary, )?final\. Channel must be included for every message\."
    rf"(?:\n{re.escape(_NOTE)})?)?"
)
_DATE = re.compile(r"^Current date: ?(.*)$", re.MULTILINE)
_CUTOFF = re.compile(r"^Knowledge cutoff: (\d{4})-(\d{2})", re.MULTILINE)
_DAY = re.compile(r"(\d{4})-(\d{2})-(\d{2})")
_SLACK = 2  # days: the earth's time zones, and clocks that are a little wrong


@check(SHOULD, spec="harmony#dates", when=(on.is_conversation, on.prompt_is_known))
def current_date_is_sane(x: Exchange) -> Iterator[Finding]:
    """The current date is a day of the calendar, not before the model's knowledge ends, and not later than the request.

    A date that is pinned, or left out, is a legitimate choice; a model that is told 1970, or a template's placeholder, reckons with it.
    """
    system = x.system_message
    told = _DATE.search(system.content) if system is not None else None
    if system is None or told is None:
        yield variant("the system message names no current date", where="system message")
        return
    day, now = _day(told[1]), _day(x.started or "")
    ends = _CUTOFF.search(system.content)
    first = _day(f"{ends[1]}-{ends[2]}-01") if ends is not None else None
    if day is None:
        problem, expected = "is no day of the calendar", "Current date: YYYY-MM-DD"
    elif first is not None and day < first:
        problem, expected = (
            "is before the model's knowledge ends",
            RedactableText("after {}-{}", ends[1], ends[2]) if ends else "",
        )
    elif now is not None and day > now + _SLACK:
        problem, expected = "is after the day of the request", RedactableText("{} or before", (x.started or "")[:10])
    else:
        return
    yield Finding(
        message=f"the current date {problem}", at="system message", expected=expected, actual=shorten(told[0])
    )


def _day(date: str) -> int | None:
    """The number of the day that a text begins with, None where it begins with none."""
    found = _DAY.match(date.strip())
    if found is None:
        return None
    year, month, day = map(int, found.groups())
    is_real = year > 0 and 1 <= month <= 12 and 1 <= day <= monthrange(year, month)[1]  # noqa: PLR2004 - months of a year
    return timegm((year, month, day, 0, 0, 0)) // 86_400 if is_real else None


_SECTIONS = re.compile(r"# Tools\n[\s\S]*")
_FORMATS = re.compile(r"# Response Formats\n[\s\S]*")


@check(SHOULD, spec="harmony#system-form", when=(on.is_conversation, on.prompt_is_known))
def system_message_has_the_trained_form(x: Exchange) -> Iterator[Finding]:
    """The system message holds identity, dates, effort, built-in tools and channels in the guide's words and order, and nothing else.

    The note that calls go to the commentary channel belongs to functions; without any it is a variant.
    """
    system = x.system_message
    if system is None:
        return
    if _SYSTEM.fullmatch(system.content):
        if _NOTE in system.content and not any(declares_functions(message.content) for message in x.prompt_messages):
            yield variant("the note on calls of functions stands in the system message without any", where=_NOTE)
        return
    known = next((end for end in range(len(system.content), 0, -1) if _SYSTEM.fullmatch(system.content[:end])), 0)
    yield Finding(
        message="the system message is not of the form the model was trained on",
        at="system message",
        expected="identity, Knowledge cutoff, Current date, Reasoning, # Tools, # Valid channels",
        actual=shorten(system.content[known:] if known else system.content),
    )


_CHANNELS = re.compile(r"^# Valid channels: ?(.*?)\.", re.MULTILINE)


@check(SHOULD, spec="harmony#channels-of-calls", when=(on.is_conversation, on.prompt_is_known, on.offered_tools))
def channel_of_calls_is_valid(x: Exchange) -> Iterator[Finding]:
    """Where functions are declared, commentary, on which they are called, is among the channels that the system message calls valid.

    Without functions it may be left out, as some servers do. vLLM 0.11.0 leaves it out with functions too, and tells the model in the next line that
    calls go there.
    """
    system = x.system_message
    named = _CHANNELS.search(system.content) if system is not None else None
    if named is None or not any(declares_functions(message.content) for message in x.prompt_messages):
        return
    if "commentary" not in named[1].replace(",", " ").split():
        yield Finding(
            message="functions are declared, and the channel of their calls is not among the valid ones",
            at="system message",
            expected="# Valid channels: analysis, commentary, final.",
            actual=shorten(named[0]),
        )


@check(SHOULD, spec="harmony#developer", when=(on.is_conversation, on.prompt_is_known))
def developer_message_holds_nothing_else(x: Exchange) -> Iterator[Finding]:
    """The developer message holds the instructions of the request, its tools and formats, and nothing else.

    Text that a server adds here speaks with the developer's authority to every one of its users' models. Other line ends between the parts, or another
    order of them, are variants.
    """
    asked = [part.text for part in x.expected_parts if part.kind is PartKind.INSTRUCTIONS]
    for index, message in enumerate(x.prompt_messages):
        if message.role != "developer":
            continue
        rest = message.content
        for said in (said for said in asked if said in rest):
            rest = rest.replace(said, "", 1)
        official = official_spelling(x.tools)
        rest = rest.replace(official, "", 1) if official and official in rest else _SECTIONS.sub("", rest)
        rest = _FORMATS.sub("", rest).replace("# Instructions\n\n", "", 1).strip()
        if rest and rest != "# Instructions":
            yield Finding(
                message="a developer message holds text that the request does not",
                at=f"prompt message {index}",
                expected="# Instructions, # Tools, # Response Formats",
                actual=shorten(rest),
            )
        elif message.content != _spelling(message.content, asked, official, _format_name(x)):
            yield variant("the line ends of a developer message are not the library's", where=f"prompt message {index}")


def _format_name(x: Exchange) -> str:
    return text(at(x.chat_request, "response_format", "json_schema", "name"))


def _spelling(content: str, asked: list[str], tools: str, name: str) -> str:
    """The developer message with these parts as the guide and the library write it, one blank line between them; of other parts as they stand."""
    position, held = 0, list[str]()
    for said in asked:
        found = content.find(said, position)
        if said and found >= 0:
            held.append(said)
            position = found + len(said)
    formats = _FORMATS.search(content, position)
    shown = _SECTIONS.search(content, position)
    section = (
        tools if tools in content else shown[0].removesuffix(formats[0] if formats else "").rstrip() if shown else ""
    )
    begun = f"# Response Formats\n\n## {name}\n\n"
    schema = formats[0][len(begun) :].lstrip("\n") if formats and name else ""
    last = begun + schema if schema else formats[0] if formats else ""
    head = INSTRUCTIONS + "\n\n".join(held) if held else "# Instructions" if "# Instructions" in content else ""
    return "\n\n".join(part for part in (head, section, last) if part)


@condition
def asks_for_a_schema(x: Exchange) -> bool:
    """requests whose answer is to follow a JSON schema"""
    return isinstance(at(x.chat_request, "response_format", "json_schema", "schema"), dict)


@check(MUST, spec="harmony#response-formats", when=(on.is_conversation, on.prompt_is_known, asks_for_a_schema))
def answer_schema_is_whole(x: Exchange) -> Iterator[Finding]:
    """Where the prompt has a section `# Response Formats`, the schema of the request stands in it: equal as JSON.

    A server may leave the section out and constrain the sampling alone; a schema that lost a part asks the model for another answer.
    """
    schema = at(x.chat_request, "response_format", "json_schema", "schema")
    told = [message.content for message in x.prompt_messages if message.role in ("developer", "system")]
    if any(canonical(value) == canonical(schema) for content in told for value in objects_in(content)):
        return
    section = next((found[0] for content in told if (found := _FORMATS.search(content)) is not None), None)
    if section is None:
        yield variant("the schema of the answer is not told to the model", where="/response_format")
    else:
        yield Finding(
            message="the schema of the answer is not what was sent",
            at="# Response Formats",
            expected=shorten(dumps(schema)),
            actual=shorten(section),
        )
