"""What is compared with the oracle."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import fuzz_answers as answers
import fuzz_completions as completions
import fuzz_conversations as conversations
import fuzz_kinds as kinds
from fuzz_texts import spaced_texts, texts
from hypothesis import strategies as st


@dataclass(frozen=True, kw_only=True)
class Property:
    """One kind of question.

    Attributes:
        cases: the random inputs.
        ask: oracle and input → (question, the library's answer, ours), any number of them.
        kinds_of: input and answers → what they are an example of.
        share: how often this is tried, relative to the others.
    """

    cases: st.SearchStrategy
    ask: Callable[[object, object], Iterator[tuple[str, object, object]]]
    share: int
    kinds_of: Callable[[object, list], Iterable[str]] = lambda _case, _answers: ()


notes = st.booleans()


def rendered(conversation):
    """A conversation, the role that is to speak next, and whether reasoning is dropped."""
    return st.tuples(conversation, st.sampled_from(completions.ROLES), st.sampled_from([True, True, False, None]))


PROPERTIES = {
    "a message is rendered": Property(
        cases=st.tuples(conversations.messages(), notes), ask=answers.one_message, share=10, kinds_of=kinds.of_rendering
    ),
    "a conversation is rendered": Property(
        cases=rendered(conversations.conversations),
        ask=answers.conversation,
        share=10,
        kinds_of=kinds.of_rendering,
    ),
    "reasoning is dropped": Property(
        cases=rendered(conversations.turns), ask=answers.conversation, share=8, kinds_of=kinds.of_rendering
    ),
    "a malformed conversation is refused": Property(
        cases=rendered(conversations.malformed_conversations()),
        ask=answers.conversation,
        share=6,
        kinds_of=kinds.of_rendering,
    ),
    "surrogates are repaired or refused": Property(
        cases=rendered(conversations.conversations_with_surrogates),
        ask=answers.conversation,
        share=3,
        kinds_of=kinds.of_rendering,
    ),
    "a schema becomes TypeScript": Property(
        cases=conversations.schemas.filter(lambda schema: schema is not None),
        ask=answers.typescript,
        share=15,
        kinds_of=kinds.of_schema,
    ),
    "a completion is parsed": Property(
        cases=completions.requests(), ask=answers.completion, share=14, kinds_of=kinds.of_completion
    ),
    "a header is read": Property(
        cases=completions.headers(), ask=answers.completion, share=14, kinds_of=kinds.of_completion
    ),
    "a stream has equal attributes after every token": Property(
        cases=completions.splits(completions.requests()), ask=answers.stream, share=5, kinds_of=kinds.of_stream
    ),
    "text split between any two bytes is streamed": Property(
        cases=completions.splits(completions.streams()), ask=answers.stream, share=4, kinds_of=kinds.of_stream
    ),
    "text is encoded": Property(
        cases=texts | st.text() | spaced_texts, ask=answers.encoding, share=4, kinds_of=kinds.of_text
    ),
    "tokens are decoded": Property(
        cases=completions.runs_to_decode, ask=answers.decoding, share=4, kinds_of=kinds.of_decoding
    ),
}
