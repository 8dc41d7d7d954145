"""The repairs: for each repairable check the fixes, and the examples that they cannot repair.

Proof: `proxy/tests/repair/test_repair_proofs.py`. It repairs every failing example of the check, unless `unrepairable_examples` gives a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from harmony_proxy.repair.answer.fixes import (
    Fix,
    clean_call_ids,
    clean_names,
    correct_finish_reason,
    correct_status,
    remove_repetition,
    remove_trailing_markers,
    rewrite_from_ids,
    rewrite_from_text,
    rewrite_refusal,
    truncate_arguments,
)
from harmony_proxy.repair.answer.item_fixes import clean_items

FIXES: tuple[Fix, ...] = (
    rewrite_from_ids,
    rewrite_from_text,
    remove_trailing_markers,
    remove_repetition,
    rewrite_refusal,
    clean_names,
    clean_call_ids,
    truncate_arguments,
    clean_items,
    correct_finish_reason,
    correct_status,
)
"""All fixes, in the order in which they are tried."""

NO_REPAIR = "no repair makes the check pass without failing another"
_LOST_NAME = "the function name is lost"
_A_NAME = "the marker is the name of a member: the correct name is unknown"
_HOW_IT_ENDED = "the answer does not show whether the token limit or the model ended it"
_NO_FUNCTION = "the text does not name the function"
_ANOTHER_NAME = "the server changed the name: calling a guessed function is worse than a failed call"
_BY_IDS = "If the answer has its emitted token ids, it is rewritten to match them."
_NEXT_MESSAGE = "what follows the input of a tool is another message, which has no place in it"
_NO_IDS = "the answer has no token ids, so the output of the model is unknown"
_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Repair:
    """Repair of the failures of one check.

    Attributes:
        check: Id of the check.
        description: Description of the repair, one sentence.
        fixes: Fixes for whole answers; the first that helps is applied.
        unrepairable_examples: Reason for each example of the check that is not repaired.
            An example `<name> (streamed)` is the same answer as a stream, `<name> (without the ids)` the same without token ids.
    """

    check: str
    description: str
    fixes: tuple[Fix, ...]
    unrepairable_examples: Mapping[str, str] = field(default_factory=lambda: _NONE)


_ALL = (
    Repair(
        check="channels.no_marker_leak",
        description="The text is parsed as Harmony: reasoning moves to the reasoning field, calls become tool calls, markers and header words are removed."
        " A name or an input of a tool that is no function loses its markers.",
        fixes=(
            rewrite_from_ids,
            rewrite_from_text,
            remove_trailing_markers,
            rewrite_refusal,
            clean_names,
            clean_call_ids,
            truncate_arguments,
            clean_items,
        ),
        unrepairable_examples={
            "fail-header-as-the-name": _LOST_NAME,
            "fail-in-a-key-of-the-arguments": _A_NAME,
            "fail-in-an-annotation": "the text of an annotation comes from a page or a file: the part that the model wrote cannot be identified",
            "fail-key-of-a-special-token (without the ids)": _A_NAME,
            "fail-in-the-input-of-a-custom-tool": _NEXT_MESSAGE,
            "fail-in-the-input-of-a-servers-tool-streamed": "blocks of a stream are not rewritten",
            "fail-lone-marker-and-many-tokens": "the server lost the text of the tokens: without the marker the answer would be empty",
            "fail-in-reasoning-details-streamed": "supported clients do not read `reasoning_details`: streams are rewritten only in members that clients read",
        },
    ),
    Repair(
        check="channels.no_channel_words",
        description="Header words without markers are parsed as headers: reasoning moves to the reasoning field, calls become tool calls.",
        fixes=(rewrite_from_ids, rewrite_from_text, clean_names),
        unrepairable_examples={
            "fail-code-call": _NO_FUNCTION,
            "fail-in-a-command": "the text of a command is not parsed as messages",
            "fail-cut-header-without-its-markers": "the limit cut the header: the words announce nothing that could be repaired",
            "fail-forbidden-call": "the request does not allow the function: the text must not become a call",
            "fail-escaped-arguments-with-known-ids (without the ids)": _NO_FUNCTION,
            "fail-thought-in-quotes (streamed)": "the text was emitted before anything identified it as reasoning",
        },
    ),
    Repair(
        check="channels.no_reasoning_in_content",
        description="Reasoning in tags moves to the reasoning field. Reasoning that the content repeats, or that the token ids identify, leaves the content.",
        fixes=(rewrite_from_ids, rewrite_from_text, remove_repetition),
        unrepairable_examples={
            "fail-repeated (streamed)": "the content was emitted before it was known to repeat the reasoning"
        },
    ),
    Repair(
        check="tool_calls.name_is_declared",
        description="Markers, channel words, content types and the namespace are removed from the name if the rest is a declared function.",
        fixes=(clean_names,),
        unrepairable_examples={
            "fail-empty": _LOST_NAME,
            "fail-header-as-the-name": _LOST_NAME,
            "fail-no-such-tool": "the model named an undeclared function",
            "fail-parallel-wrapper": "the model named an undeclared function",
            "fail-normalised": _ANOTHER_NAME,
            "fail-only-first-word": _ANOTHER_NAME,
            "fail-only-last-part": _ANOTHER_NAME,
        },
    ),
    Repair(
        check="tool_calls.finish_reason_agrees",
        description="`stop` with calls becomes `tool_calls`, `tool_calls` without calls becomes `stop`, and a finish reason of another API is translated.",
        fixes=(correct_finish_reason,),
        unrepairable_examples={
            "fail-another-word-than-the-row": "only the test script defines the expected finish reason; the answer does not show it",
            "fail-missing": "the answer does not show whether it ended by itself or was truncated",
            "fail-completions-cut": "answers of the Completions API pass unchanged",
        },
    ),
    Repair(
        check="channels.content_is_the_answer",
        description=_BY_IDS,
        fixes=(rewrite_from_ids,),
        unrepairable_examples={
            "fail-beyond-the-limit": _NO_IDS,
            "fail-end-lost-beyond-the-limit": _NO_IDS,
            "fail-white-space-in-the-header": _NO_IDS,
        },
    ),
    Repair(
        check="reasoning.reasoning_holds_no_answer",
        description=_BY_IDS,
        fixes=(rewrite_from_ids,),
    ),
    Repair(
        check="responses.status_says_how_it_ended",
        description="If the emitted token ids show how the answer ended, the status, its reason and the last event are set accordingly.",
        fixes=(correct_status,),
        unrepairable_examples={
            "fail-completed-with-details": _HOW_IT_ENDED,
            "fail-incomplete-item": _HOW_IT_ENDED,
            "fail-reasoning-alone-at-the-limit": _HOW_IT_ENDED,
        },
    ),
)

REPAIRS: Mapping[str, Repair] = MappingProxyType({repair.check: repair for repair in _ALL})
"""The repairs by check id."""
