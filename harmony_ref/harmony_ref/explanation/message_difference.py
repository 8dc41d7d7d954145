"""What differs inside one message that is in its place: a field of its header, its content, its end."""

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
        return _difference_of_headers(expected, actual)
    if expected.content_ids != actual.content_ids:
        return difference_of_contents(expected.content, actual.content, expected.role)
    if actual.end is None:
        return Difference(Part.END, Problem.MISSING, f"the end marker {expected.end_name} is missing")
    words = f"the message ends in {actual.end_name} where {expected.end_name} was expected"
    return Difference(Part.END, Problem.DIFFERENT, words)


def _difference_of_headers(expected: PromptMessage, actual: PromptMessage) -> Difference:
    # A tool has its name for an author; any other author is a role, and perhaps a name behind a colon.
    roles = {author.partition(":")[0] for author in (expected.author, actual.author)}
    fields = (
        (Part.ROLE if len(roles) > 1 and roles & _ROLES else Part.NAME, expected.author, actual.author),
        (Part.RECIPIENT, expected.recipient, actual.recipient),
        (Part.RECIPIENT, expected.place, actual.place),
        (Part.CHANNEL, expected.channel, actual.channel),
        (Part.CONTENT_TYPE, expected.content_type, actual.content_type),
    )
    part, wanted, found = next((field for field in fields if field[1] != field[2]), (Part.HEADER, None, None))
    if isinstance(found, Place):
        return Difference(part, Problem.MISPLACED, f"the {found.replace('recipient', 'recipient stands')}")
    if wanted == found:
        words = f"the header is spelled otherwise: {quoted(actual.header)} for {quoted(expected.header)}"
        return Difference(part, Problem.OTHER_SPELLING, words)
    wanted, found = (field and field.replace("⟦constrain⟧", CONSTRAIN_MARKER) for field in (wanted, found))
    if found is None:
        return Difference(part, Problem.MISSING, f"the {part} is missing, {wanted!r} was expected")
    if wanted is None:
        return Difference(part, Problem.EXTRA, f"the {part} is {found!r} where none was expected")
    return Difference(part, Problem.DIFFERENT, f"the {part} is {found!r} where {wanted!r} was expected")
