"""Family `hierarchy`: the roles of instructions. System and developer messages of the API are the developer's instructions in Harmony."""

from __future__ import annotations

import re
from calendar import monthrange, timegm
from collections.abc import Iterator, Sequence

from harmony_conformance.checks.helpers.closed_schemas import is_closed_in_prompt
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import canonical_json, dumps, find_objects, text, value_at
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, SHOULD, Finding, check, mismatch, variant
from harmony_conformance.judge.condition import condition
from harmony_conformance.judge.history_conditions import gives_instructions, has_allowed_order
from harmony_conformance.prompts.declarations_in_prompt import declares_functions, official_tools_text
from harmony_conformance.prompts.expected_parts import INSTRUCTIONS_HEADING, PartKind, PromptMessage, PromptPart
from harmony_conformance.prompts.request_members import other_tool_names
from harmony_conformance.redactable_text import RedactableText, ReportText, shorten

_IDENTITY = "You are ChatGPT, a large language model trained by OpenAI."


@check(
    MUST, spec="harmony#developer", when=(on.is_conversation, on.prompt_is_known, gives_instructions, has_allowed_order)
)
def instructions_reach_the_model(x: Exchange) -> Iterator[Finding]:
    """Every system and developer message of the request is in the prompt, under `# Instructions` of a developer message, in order.

    Some templates silently render only the first of them, or drop those that are not first (defects J05, V31).
    """
    messages = x.prompt_messages
    developer = "\n".join(m.content for m in messages if m.role == "developer")
    system = "\n".join(m.content for m in messages if m.role == "system")
    position = 0
    sent = [part for part in x.expected_parts if part.kind is PartKind.INSTRUCTIONS and part.text.strip()]
    times_sent = {part.text: sum(one.text.count(part.text) for one in sent) for part in sent}
    for part in sent:
        start = developer.find(part.text, position)
        if start >= 0:
            position = start + len(part.text)
        elif part.text in developer and (role := _other_role(messages, part.text)) is not None:
            yield _misplaced(part, RedactableText("they are in a {} message", role))
        elif part.text in developer and developer.count(part.text) < times_sent[part.text]:
            message = "a copy of instructions that were sent several times is dropped"
            kept = RedactableText("{} of {} copies", developer.count(part.text), times_sent[part.text])
            yield mismatch(message, part.where, RedactableText("all {} copies", times_sent[part.text]), kept)
        elif part.text in developer:
            message = "instructions are in another order than they were sent"
            yield mismatch(message, part.where, "the order of the request", shorten(part.text))
        elif part.text in system:
            yield variant("instructions are in the system message", where=part.where)
        else:
            role = next((m.role for m in messages if part.text in m.content), None)
            head = part.text.partition("<|")[0].strip()
            actual = RedactableText("they are in a {} message", role) if role else "they are nowhere in the prompt"
            if role is None and head and head in developer:
                actual = RedactableText("they are cut at a marker, after: {}", shorten(head))
            yield _misplaced(part, actual)
    instructions = "\n".join(m.content.partition("# Tools\n")[0] for m in messages if m.role == "developer")
    twice = next((part for part in sent if instructions.count(part.text) > times_sent[part.text]), None)
    if twice is not None:
        message = "instructions are in the prompt more often than they were sent"
        yield mismatch(message, twice.where, "once", RedactableText("{} times", instructions.count(twice.text)))
    holders = [m for m in messages if m.role == "developer" and any(part.text in m.content for part in sent)]
    bare = next((m for m in holders if "# Instructions" not in m.content), None)
    if bare is not None:
        message = "the developer message has no `# Instructions` section"
        yield mismatch(message, "developer message", "# Instructions", shorten(bare.content))


def _other_role(messages: Sequence[PromptMessage], instructions: str) -> str | None:
    """Return the role of a message that has instructions, and is neither a developer's nor the system's."""
    others = (m.role for m in messages if m.role not in ("developer", "system") and instructions in m.content)
    return next(others, None)


def _misplaced(part: PromptPart, actual: ReportText) -> Finding:
    expected = RedactableText("developer: # Instructions … {}", shorten(part.text))
    return mismatch("instructions of the request are not in a developer message", part.where, expected, actual)


@check(MUST, spec="harmony#identity", when=(on.is_conversation, on.prompt_is_known))
def identity_is_kept(x: Exchange) -> Iterator[Finding]:
    """The system message begins with the identity that the model was trained with; another identity belongs in the instructions."""
    system = x.system_message
    if system is not None and not system.content.startswith(_IDENTITY):
        message, begin = "the system message has another identity", shorten(system.content.partition("\n")[0])
        yield mismatch(message, "system message", _IDENTITY, begin)


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
_SLACK = 2  # days: time zones, and inexact clocks


@check(SHOULD, spec="harmony#dates", when=(on.is_conversation, on.prompt_is_known))
def current_date_is_sane(x: Exchange) -> Iterator[Finding]:
    """The current date is a day of the calendar, not before the model's knowledge cutoff, and not later than the request.

    A server may pin the date or omit it. But the model believes a date of 1970, and uses a template's placeholder as a date.
    """
    system = x.system_message
    line = _DATE.search(system.content) if system is not None else None
    if system is None or line is None:
        yield variant("the system message has no current date", where="system message")
        return
    day, now = _day(line[1]), _day(x.started or "")
    cutoff = _CUTOFF.search(system.content)
    first = _day(f"{cutoff[1]}-{cutoff[2]}-01") if cutoff is not None else None
    if day is None:
        problem, expected = "is not a day of the calendar", "Current date: YYYY-MM-DD"
    elif cutoff is not None and first is not None and day < first:
        problem, expected = "is before the knowledge cutoff", RedactableText("after {}-{}", cutoff[1], cutoff[2])
    elif now is not None and day > now + _SLACK:
        problem, expected = "is after the day of the request", RedactableText("{} or before", (x.started or "")[:10])
    else:
        return
    message, actual = f"the current date {problem}", shorten(line[0])
    yield mismatch(message, "system message", expected, actual)


def _day(date: str) -> int | None:
    """Return the ordinal of the date at the beginning of a text, in days since 1970. None if there is no valid date."""
    digits = _DAY.match(date.strip())
    if digits is None:
        return None
    year, month, day = map(int, digits.groups())
    is_real = year > 0 and 1 <= month <= 12 and 1 <= day <= monthrange(year, month)[1]  # noqa: PLR2004 - months of a year
    return timegm((year, month, day, 0, 0, 0)) // 86_400 if is_real else None


_TOOLS_SECTION = re.compile(r"# Tools\n[\s\S]*")
_FORMATS = re.compile(r"# Response Formats\n[\s\S]*")


@check(SHOULD, spec="harmony#system-form", when=(on.is_conversation, on.prompt_is_known))
def system_message_has_the_trained_form(x: Exchange) -> Iterator[Finding]:
    """The system message has identity, dates, effort, built-in tools and channels in the guide's words and order, and nothing else.

    The note that calls go to the commentary channel belongs to functions; without functions it is a variant.
    """
    system = x.system_message
    if system is None:
        return
    if _SYSTEM.fullmatch(system.content):
        if _NOTE in system.content and not any(declares_functions(message.content) for message in x.prompt_messages):
            yield variant("the system message has the note on function calls without any function", where=_NOTE)
        return
    known = next((end for end in range(len(system.content), 0, -1) if _SYSTEM.fullmatch(system.content[:end])), 0)
    problem = "the system message does not have the form that the model was trained on"
    expected = "identity, Knowledge cutoff, Current date, Reasoning, # Tools, # Valid channels"
    yield mismatch(problem, "system message", expected, shorten(system.content[known:] if known else system.content))


_CHANNELS = re.compile(r"^# Valid channels: ?(.*?)\.", re.MULTILINE)


@check(SHOULD, spec="harmony#channels-of-calls", when=(on.is_conversation, on.prompt_is_known, on.offered_tools))
def channel_of_calls_is_valid(x: Exchange) -> Iterator[Finding]:
    """If functions are declared, the valid channels in the system message include commentary, the channel of function calls.

    Without functions a server may omit it. vLLM 0.11.0 omits it with functions too, although the next line sends calls to that channel.
    """
    system = x.system_message
    named = _CHANNELS.search(system.content) if system is not None else None
    if named is None or not any(declares_functions(message.content) for message in x.prompt_messages):
        return
    if "commentary" not in named[1].replace(",", " ").split():
        problem = "functions are declared, and the valid channels lack the channel of their calls"
        yield mismatch(problem, "system message", "# Valid channels: analysis, commentary, final.", shorten(named[0]))


@condition
def continues_nothing(x: Exchange) -> bool:
    """requests that continue no stored conversation, whose instructions the server has"""
    return not any(value_at(x.chat_request, name) for name in ("previous_response_id", "conversation"))


@check(SHOULD, spec="harmony#developer", when=(on.is_conversation, on.prompt_is_known, continues_nothing))
def developer_message_holds_nothing_else(x: Exchange) -> Iterator[Finding]:
    """The developer message contains the instructions of the request, its tools and formats, and nothing else.

    Text that a server adds here has the developer's authority in the requests of all its users. Other line ends between the parts, or another order of
    them, are variants.
    """
    instructions = [part.text for part in x.expected_parts if part.kind is PartKind.INSTRUCTIONS]
    format_name = text(value_at(x.chat_request, "response_format", "json_schema", "name"))
    for index, message in enumerate(x.prompt_messages):
        if message.role != "developer":
            continue
        rest = message.content
        for instruction in (one for one in instructions if one in rest):
            rest = rest.replace(instruction, "", 1)
        official = official_tools_text(x.tools)
        is_official = official and official in rest and not other_tool_names(x.chat_request)
        rest = rest.replace(official, "", 1) if is_official else _TOOLS_SECTION.sub("", rest)
        rest = _FORMATS.sub("", rest).replace("# Instructions\n\n", "", 1).strip()
        if any(rest in instruction for instruction in instructions if rest):
            continue  # a part of instructions that did not arrive whole
        if rest and rest != "# Instructions":
            problem = "a developer message contains text that is not in the request"
            expected = "# Instructions, # Tools, # Response Formats"
            yield mismatch(problem, f"prompt message {index}", expected, shorten(rest))
        elif message.content != _official_form(message.content, instructions, official, format_name):
            yield variant("the line ends of a developer message are not the library's", where=f"prompt message {index}")


def _official_form(content: str, instructions: list[str], tools: str, name: str) -> str:
    """Return the developer message as the guide and the library write it: one blank line between its parts, other parts unchanged."""
    position, shown = 0, list[str]()
    for instruction in instructions:
        start = content.find(instruction, position)
        if instruction and start >= 0:
            shown.append(instruction)
            position = start + len(instruction)
    formats = _FORMATS.search(content, position)
    sections = _TOOLS_SECTION.search(content, position)
    other_tools = sections[0].removesuffix(formats[0] if formats else "").rstrip() if sections else ""
    section = tools if tools in content else other_tools
    heading = f"# Response Formats\n\n## {name}\n\n"
    schema = formats[0][len(heading) :].lstrip("\n") if formats and name else ""
    last = heading + schema if schema else formats[0] if formats else ""
    bare_heading = "# Instructions" if "# Instructions" in content else ""
    head = INSTRUCTIONS_HEADING + "\n\n".join(shown) if shown else bare_heading
    return "\n\n".join(part for part in (head, section, last) if part)


@condition
def asks_for_a_schema(x: Exchange) -> bool:
    """requests whose answer must follow a JSON schema"""
    return isinstance(value_at(x.chat_request, "response_format", "json_schema", "schema"), dict)


@check(MUST, spec="harmony#response-formats", when=(on.is_conversation, on.prompt_is_known, asks_for_a_schema))
def answer_schema_is_whole(x: Exchange) -> Iterator[Finding]:
    """A section `# Response Formats` in the prompt contains the schema of the request, equal as JSON.

    A server may omit the section and only constrain the sampling. A schema that lost a part asks the model for another answer. Over the Messages API a
    server may set `additionalProperties: false` in every object, as its official client does: the API accepts no other schema.
    """
    schema = value_at(x.chat_request, "response_format", "json_schema", "schema")
    contents = [message.content for message in x.prompt_messages if message.role in ("developer", "system")]
    if any(canonical_json(value) == canonical_json(schema) for content in contents for value in find_objects(content)):
        return
    section = next((match[0] for content in contents if (match := _FORMATS.search(content)) is not None), None)
    if is_closed_in_prompt(x):
        yield variant("the schema of the answer was closed by additionalProperties: false", where="# Response Formats")
    elif section is None:
        yield variant("the schema of the answer is not in the prompt", where="/response_format")
    else:
        problem = "the schema of the answer is not what was sent"
        yield mismatch(problem, "# Response Formats", shorten(dumps(schema)), shorten(section))
