"""What differs inside one message that is in its place: a field of its header, its content, its end."""

from collections.abc import Iterator
from typing import Final

from harmony_ref.explanation.divergence import Difference, Part, Problem
from harmony_ref.explanation.reading import Place, PromptMessage, quoted
from harmony_ref.explanation.texts import difference_of_contents
from harmony_ref.header import CONSTRAIN_MARKER
from harmony_ref.messages import Role

_ROLES: Final = frozenset(role.value for role in Role)


def difference_of_messages(expected: PromptMessage, actual: PromptMessage) -> Difference:
    """The first difference between a message of the prompt and the one expected, which is whole."""
    if actual.content_ids is None:
        return Difference(Part.HEADER, Problem.MISSING, f"the message marker is missing after {quoted(actual.header)}")
    if expected.header_ids != actual.header_ids:
        words = f"the header is spelled otherwise: {quoted(actual.header)} for {quoted(expected.header)}"
        spelling = Difference(Part.HEADER, Problem.OTHER_SPELLING, words)
        return next(header_differences(expected, actual), spelling)
    if expected.content_ids != actual.content_ids:
        return difference_of_contents(expected.content, actual.content, expected.role)
    if actual.end is None:
        return Difference(Part.END, Problem.MISSING, f"the end marker {expected.end_name} is missing")
    words = f"the message ends in {actual.end_name} where {expected.end_name} was expected"
    return Difference(Part.END, Problem.DIFFERENT, words)


def header_differences(expected: PromptMessage, actual: PromptMessage) -> Iterator[Difference]:
    """The fields in which two headers differ: author, recipient, its place, channel, content type."""
    # A tool has its name for an author; any other author is a role, and perhaps a name behind a colon.
    roles = {author.partition(":")[0] for author in (expected.author, actual.author)}
    author = Part.ROLE if len(roles) > 1 and roles & _ROLES else Part.NAME
    yield from _difference_of_fields(author, expected.author, actual.author)
    yield from _difference_of_fields(Part.RECIPIENT, expected.recipient, actual.recipient)
    if expected.place is not actual.place and Place.NONE not in (expected.place, actual.place):
        words = f"the {actual.place.replace('recipient', 'recipient stands')}"
        yield Difference(Part.RECIPIENT, Problem.MISPLACED, words)
    yield from _difference_of_fields(Part.CHANNEL, expected.channel, actual.channel)
    yield from _difference_of_fields(Part.CONTENT_TYPE, expected.content_type, actual.content_type)


def _difference_of_fields(part: Part, expected: str | None, actual: str | None) -> Iterator[Difference]:
    wanted, found = (field and field.replace("⟦constrain⟧", CONSTRAIN_MARKER) for field in (expected, actual))
    if found == wanted:
        return
    if found is None:
        yield Difference(part, Problem.MISSING, f"the {part} is missing, {wanted!r} was expected")
    elif wanted is None:
        yield Difference(part, Problem.EXTRA, f"the {part} is {found!r} where none was expected")
    else:
        yield Difference(part, Problem.DIFFERENT, f"the {part} is {found!r} where {wanted!r} was expected")
