"""What differs inside one message that stands where it should: a field of its header, its content, its end."""

from dataclasses import dataclass
from typing import Final

from harmony_ref.explanation.divergence import Part, Problem
from harmony_ref.explanation.reading import HeaderFields, PromptMessage, header_fields, quoted, shown
from harmony_ref.explanation.texts import difference_of_contents
from harmony_ref.messages import Role

_ROLES: Final = frozenset(role.value for role in Role)


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageDifference:
    """What differs, in which way, and a clause that says so."""

    part: Part
    problem: Problem
    words: str


def difference_of_messages(expected: PromptMessage, actual: PromptMessage) -> MessageDifference:
    """How a message of the prompt differs from the one expected, which is whole."""
    if actual.content is None:
        words = f"the message marker is missing after {quoted(shown(actual.header))}"
        return MessageDifference(part=Part.HEADER, problem=Problem.MISSING, words=words)
    if tuple(expected.header) != tuple(actual.header):
        return _difference_of_headers(expected, actual)
    wanted, found = tuple(expected.content or ()), tuple(actual.content)
    if wanted != found:
        role = header_fields(expected.header).author
        difference = difference_of_contents(shown(wanted), shown(found), role)
        return MessageDifference(part=difference.part, problem=difference.problem, words=difference.words)
    end = shown(expected.ids[-1:])
    if actual.end is None:
        return MessageDifference(part=Part.END, problem=Problem.MISSING, words=f"the end marker {end} is missing")
    words = f"the message ends in {shown((actual.end,))} where {end} was expected"
    return MessageDifference(part=Part.END, problem=Problem.DIFFERENT, words=words)


def _difference_of_headers(expected: PromptMessage, actual: PromptMessage) -> MessageDifference:
    wanted, found = header_fields(expected.header), header_fields(actual.header)
    if wanted.author != found.author:
        return _difference_of_fields(_part_of_author(wanted, found), wanted.author, found.author)
    if wanted.recipient != found.recipient:
        return _difference_of_fields(Part.RECIPIENT, wanted.recipient, found.recipient)
    if wanted.is_after_channel != found.is_after_channel:
        stands = "after" if found.is_after_channel else "before"
        words = f"the recipient stands {stands} the channel"
        return MessageDifference(part=Part.RECIPIENT, problem=Problem.MISPLACED, words=words)
    if wanted.channel != found.channel:
        return _difference_of_fields(Part.CHANNEL, wanted.channel, found.channel)
    if wanted.content_type != found.content_type:
        return _difference_of_fields(Part.CONTENT_TYPE, wanted.content_type, found.content_type)
    words = f"the header is spelled otherwise: {quoted(shown(actual.header))} for {quoted(shown(expected.header))}"
    return MessageDifference(part=Part.HEADER, problem=Problem.OTHER_SPELLING, words=words)


def _part_of_author(wanted: HeaderFields, found: HeaderFields) -> Part:
    """A tool stands under its name; any other author under a role, and perhaps a name behind a colon."""
    roles = {author.partition(":")[0] for author in (wanted.author, found.author)}
    return Part.ROLE if len(roles) > 1 and roles & _ROLES else Part.NAME


def _difference_of_fields(part: Part, wanted: str | None, found: str | None) -> MessageDifference:
    if found is None:
        problem, words = Problem.MISSING, f"the {part} is missing, {wanted!r} was expected"
    elif wanted is None:
        problem, words = Problem.EXTRA, f"the {part} is {found!r} where none was expected"
    else:
        problem, words = Problem.DIFFERENT, f"the {part} is {found!r} where {wanted!r} was expected"
    return MessageDifference(part=part, problem=problem, words=words)
