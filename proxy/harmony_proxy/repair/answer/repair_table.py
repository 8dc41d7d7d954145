"""The repairs: for each check that has one, what is done, and what cannot be done. A table; a repair names its check and owes it a proof.

The proof is in `proxy/tests/test_acting_proofs.py`: every example on which the check fails is repaired, or stands under `cannot` with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from harmony_proxy.repair.answer.fixes import (
    Mending,
    arguments_cut,
    call_ids_cleaned,
    finish_mended,
    markers_cut,
    names_cleaned,
    refusal_told,
    repetition_removed,
    status_mended,
    told_from_ids,
    told_from_text,
)

NO_REPAIR = "no repair makes the check pass without failing another"
_LOST_NAME = "which function was meant is lost"
_AN_ERROR = "an error is in the server's words: nothing says where those of the model begin and end"
_A_NAME = "the marker is the name of a member: what the name should be is not known"
_HOW_IT_ENDED = "nothing shows whether the limit cut the answer, or the model ended it"
_NO_FUNCTION = "nothing names the function"
_ANOTHER_NAME = "the server made another name of it: to guess a function and run it is worse than a call that fails"
_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Repair:
    """A repair of what one check finds.

    Attributes:
        check: its id.
        does: what is done, in a sentence.
        by: the changes of a whole answer, of which the first is taken that helps.
        cannot: the examples of the check that are not repaired, each with the reason. `<name> (streamed)` is the same answer as a stream,
            `<name> (without the ids)` the same without the ids of its tokens.
    """

    check: str
    does: str
    by: tuple[Mending, ...]
    cannot: Mapping[str, str] = field(default_factory=lambda: _NONE)


_ALL = (
    Repair(
        check="channels.no_marker_leak",
        does="The text is read as the Harmony it is: reasoning goes to the reasoning field, calls become tool calls, markers and header words go.",
        by=(told_from_ids, told_from_text, markers_cut, refusal_told, names_cleaned, call_ids_cleaned, arguments_cut),
        cannot={
            "fail-header-as-the-name": _LOST_NAME,
            "fail-in-a-key-of-the-arguments": _A_NAME,
            "fail-in-an-error": _AN_ERROR,
            "fail-in-an-error-streamed": _AN_ERROR,
            "fail-in-an-annotation": "the text of an annotation is a page's or a file's: nothing says what of it the model wrote",
            "fail-key-of-a-special-token (without the ids)": _A_NAME,
            "fail-lone-marker-and-many-tokens": "what the tokens said is lost in the server: without the marker the answer would be empty",
            "fail-in-reasoning-details-streamed": "a member that no client of ours reads: streams are told anew where clients read them",
        },
    ),
    Repair(
        check="channels.no_channel_words",
        does="The words of headers are read as the headers they were: reasoning goes to the reasoning field, calls become tool calls.",
        by=(told_from_ids, told_from_text, names_cleaned),
        cannot={
            "fail-code-call": _NO_FUNCTION,
            "fail-forbidden-call": "the request does not allow the function: a call must not be made of the text",
            "fail-escaped-arguments-with-known-ids (without the ids)": _NO_FUNCTION,
            "fail-thought-in-quotes (streamed)": "nothing showed that the text was a thought before it was told",
        },
    ),
    Repair(
        check="channels.no_reasoning_in_content",
        does="A thought in tags goes to the reasoning field; one that stands in both fields, or that the ids show to be one, leaves the content.",
        by=(told_from_ids, told_from_text, repetition_removed),
        cannot={
            "fail-repeated (streamed)": "nothing shows that the content repeats the reasoning before it was told",
        },
    ),
    Repair(
        check="tool_calls.name_is_declared",
        does="Markers, channel words, content types and the namespace are cut off the name, if what is left is a declared function.",
        by=(names_cleaned,),
        cannot={
            "fail-empty": _LOST_NAME,
            "fail-header-as-the-name": _LOST_NAME,
            "fail-no-such-tool": "the model named another function: there is none to call",
            "fail-normalised": _ANOTHER_NAME,
            "fail-only-first-word": _ANOTHER_NAME,
            "fail-only-last-part": _ANOTHER_NAME,
        },
    ),
    Repair(
        check="tool_calls.finish_reason_agrees",
        does="`stop` beside calls becomes `tool_calls`, `tool_calls` without calls `stop`; a word of another API becomes the one it means.",
        by=(finish_mended,),
        cannot={
            "fail-another-word-than-the-row": "only who wrote the script knows which reason goes with it; the wire shows nothing",
            "fail-missing": "nobody can tell whether the answer ended by itself or was cut",
            "fail-completions-cut": "what continues a prompt is passed on as it is",
        },
    ),
    Repair(
        check="channels.content_is_the_answer",
        does="Where the emitted ids came with the answer, it is told as they mean it.",
        by=(told_from_ids,),
    ),
    Repair(
        check="reasoning.reasoning_holds_no_answer",
        does="Where the emitted ids came with the answer, it is told as they mean it.",
        by=(told_from_ids,),
    ),
    Repair(
        check="responses.status_says_how_it_ended",
        does="Where the emitted ids show that the limit cut the answer, or that it ended, the status, its reason and the last event say so.",
        by=(status_mended,),
        cannot={
            "fail-completed-with-details": _HOW_IT_ENDED,
            "fail-incomplete-item": _HOW_IT_ENDED,
        },
    ),
)

REPAIRS: Mapping[str, Repair] = MappingProxyType({repair.check: repair for repair in _ALL})
"""The repairs by their check."""
