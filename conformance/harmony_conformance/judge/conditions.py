"""Conditions under which a check applies; nothing else can skip a check. The docstring of each completes "applies to …"."""

from __future__ import annotations

from harmony_conformance.apis.registry import (
    CHAT_COMPLETIONS,
    COMPLETIONS,
    CONVERSATION_APIS,
    RESPONSES,
    SGLANG_GENERATE,
    TGI,
)
from harmony_conformance.evidence.answerless_requests import has_no_answer
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.leaks import about_harmony
from harmony_conformance.evidence.levels import METRICS_API as METRICS
from harmony_conformance.evidence.levels import REFUSABLE_VALIDITIES, SPLIT_IN_DOUBT, AnsweredBy, Validity
from harmony_conformance.evidence.series_pairs import (
    STREAM_SUFFIX,
    find_pair,
    prompt_count,
    same_request_pairs,
    stream_step_pairs,
)
from harmony_conformance.json_value import integer, members, value_at
from harmony_conformance.judge.condition import Condition, UnmetReason, condition, evidence, only_on, series_only
from harmony_conformance.judge.rulings import REFUSABLE_STEPS
from harmony_conformance.runtime.caching import cached_view
from harmony_conformance.transport.messages import FailureKind

MIN_SERVER_ERROR_STATUS = 500
MIN_ERROR_STATUS = 400
_STOPPED_READING = frozenset({FailureKind.TIMEOUT, FailureKind.TOO_LARGE})  # the tester closed the connection
_NOT_ENDPOINT_FAILURES = frozenset(
    {
        *(FailureKind.CLIENT_LEFT, FailureKind.RATE_LIMITED, FailureKind.ACCESS_REFUSED),
        *(FailureKind.NOT_SENT, FailureKind.RUN_STOPPED, FailureKind.SERVER_GONE),
    }
)


@condition
@cached_view
def is_conversation(x: Exchange) -> bool:
    """ordinary exchanges on an API that takes messages

    Excluded are invalid and questionable requests, and streams that the client left: other checks cover them.
    Also excluded are requests that only load or unload a model, such as one to Ollama without messages, and background Responses.
    """
    is_answerable = x.validity not in REFUSABLE_VALIDITIES and not client_left(x)
    return x.api in CONVERSATION_APIS and is_answerable and not has_no_answer(x)


@only_on(CHAT_COMPLETIONS.name)
@condition
def is_chat(x: Exchange) -> bool:
    """ordinary exchanges on Chat Completions"""
    return x.api == CHAT_COMPLETIONS.name and is_conversation.holds(x)


@only_on(CHAT_COMPLETIONS.name, COMPLETIONS.name)
@condition
def is_completion(x: Exchange) -> bool:
    """ordinary exchanges on Chat Completions and on Completions, whose streams are framed alike"""
    return is_chat.holds(x) or (x.api == COMPLETIONS.name and is_generation.holds(x))


@condition
def is_generation(x: Exchange) -> bool:
    """ordinary exchanges on an API that takes messages, or that continues a prompt"""
    is_answerable = x.validity not in REFUSABLE_VALIDITIES and not client_left(x)
    return is_conversation.holds(x) or (x.api_adapter.is_raw and is_answerable)


@condition
def api_sends_done(x: Exchange) -> bool:
    """ordinary exchanges on APIs whose streams end with `data: [DONE]`: Chat Completions, Completions, TGI's Messages and SGLang's generate"""
    return is_completion.holds(x) or (x.api in (TGI.name, SGLANG_GENERATE.name) and is_generation.holds(x))


@condition
def api_reports_usage(x: Exchange) -> bool:
    """ordinary exchanges on an API with usage in its answers: those that take messages, and Completions"""
    return is_conversation.holds(x) or is_completion.holds(x)


@condition
def api_has_finish_reason(x: Exchange) -> bool:
    """ordinary exchanges on an API with a finish_reason in its answers: those that take messages except Responses, and Completions"""
    return x.api != RESPONSES.name and api_reports_usage.holds(x)


def client_left(x: Exchange) -> bool:
    """Return True if the client closed the connection."""
    return x.failure is not None and x.failure.kind is FailureKind.CLIENT_LEFT


@condition
def was_sent(x: Exchange) -> bool:
    """requests that the endpoint had the chance to answer"""
    return x.api != METRICS and (x.failure is None or x.failure.kind not in _NOT_ENDPOINT_FAILURES)


@condition
def is_valid(x: Exchange) -> bool:
    """requests known to be valid, or answered by a server error or an error about the model's output"""
    has_failed = is_server_error(x) or x.failure is not None or blames_the_model(x)
    is_known = x.validity is Validity.VALID and not is_refusable(x)
    is_possible = x.validity in (Validity.VALID, Validity.UNKNOWN) or is_refusable(x)
    return was_sent.holds(x) and (is_known or (has_failed and is_possible))


@evidence
def has_known_script(x: Exchange) -> bool:
    """requests whose script, if any, the server does not split into other tokens: a failure may be the answer to other output"""
    return SPLIT_IN_DOUBT not in x.script_not_played


def is_refusable(x: Exchange) -> bool:
    """Return True for a request that is neither valid nor invalid, by a ruling. Older recordings have it as one of them."""
    step = f"{x.scenario}/{x.step.removesuffix(STREAM_SUFFIX)}"
    return not REFUSABLE_STEPS.isdisjoint((step, f"{step} over {x.api}"))


def blames_the_model(x: Exchange) -> bool:
    """Return True if a refusal reports the model's output as the cause, as Groq's does: the request itself was valid."""
    return "failed_generation" in members(x.error)


def is_server_error(x: Exchange) -> bool:
    """Return True for a 5xx status, or an error within a stream with a 5xx code or after the answer had begun."""
    if x.response is None or not x.response.is_success:
        return x.response is not None and x.response.status >= MIN_SERVER_ERROR_STATUS
    code = integer(value_at(x.error, "code")) or integer(value_at(x.error, "http_status_code"))
    is_late = code >= MIN_SERVER_ERROR_STATUS if code else x.turn is not None
    return x.error is not None and x.stream is not None and is_late


@condition
def is_invalid(x: Exchange) -> bool:
    """requests that are invalid on purpose"""
    return x.validity is Validity.INVALID and not is_refusable(x) and was_sent.holds(x)


@condition
def is_questionable(x: Exchange) -> bool:
    """requests that are questionable on purpose: they may be answered or refused"""
    return x.validity is Validity.QUESTIONABLE and was_sent.holds(x)


@condition
def has_response(x: Exchange) -> bool:
    """requests that got an HTTP response"""
    return x.response is not None


@condition
def was_refused(x: Exchange) -> bool:
    """responses with a 4xx or 5xx status"""
    return x.response is not None and x.response.status >= MIN_ERROR_STATUS


@condition
def was_answered(x: Exchange) -> bool:
    """answered requests"""
    return x.turn is not None and was_sent.holds(x)


@condition
def was_answered_as_scripted(x: Exchange) -> bool:
    """answered requests whose script, if any, was played"""
    return was_answered.holds(x) and not x.script_not_played


@evidence
def has_words_of_a_model(x: Exchange) -> bool:
    """answers in the words of a script or of trained weights: random weights write anything"""
    return not x.may_be_random and not x.script_not_played


@evidence
def is_no_random_guess(x: Exchange) -> bool:
    """answers in the words of a script or of trained weights, or with known output tokens"""
    return has_words_of_a_model.holds(x) or x.output.ids is not None


@condition
def api_parses_output(x: Exchange) -> bool:
    """answers of APIs that parse the output; those that only continue a prompt return it raw, with header words"""
    return not x.api_adapter.is_raw


@condition
def is_complete_answer(x: Exchange) -> bool:
    """answers that arrived completely and without an error"""
    return x.turn is not None and x.failure is None and x.error is None


@condition
def has_full_api_stream(x: Exchange) -> bool:
    """streamed answers that were read to their end, as the server framed them"""
    return has_full_stream.holds(x) and x.answered_by is AnsweredBy.API


@condition
def has_full_stream(x: Exchange) -> bool:
    """streamed answers that were read to their end"""
    stopped_reading = x.failure is not None and x.failure.kind in _STOPPED_READING
    is_answered = x.stream is not None and x.response is not None and x.response.is_success
    return is_answered and was_sent.holds(x) and not stopped_reading


@condition
def is_accepted_stream_request(x: Exchange) -> bool:
    """requests for a stream that were accepted"""
    return x.wants_stream and x.response is not None and x.response.is_success and x.answered_by is AnsweredBy.API


@condition
def called_a_tool(x: Exchange) -> bool:
    """answers with a tool call"""
    return x.turn is not None and bool(x.turn.tool_calls)


@condition
def forbade_tools(x: Exchange) -> bool:
    """answers to requests with `tool_choice: none` or without tools"""
    return x.turn is not None and (value_at(x.chat_request, "tool_choice") == "none" or not x.tools)


@condition
def demands_a_call(x: Exchange) -> bool:
    """answers to requests with `tool_choice: required`, a named function or required allowed tools, unless the limit cut them or the script makes no call"""
    choice = value_at(x.chat_request, "tool_choice")
    is_cut = x.turn is not None and x.turn.is_truncated
    scripts_no_call = x.script is not None and x.expected_output is not None and not x.expected_output.calls
    is_required = choice == "required" or value_at(choice, "allowed_tools", "mode") == "required"
    return (is_required or isinstance(value_at(choice, "function", "name"), str)) and not is_cut and not scripts_no_call


@condition
def offered_tools(x: Exchange) -> bool:
    """requests that declare tools and do not forbid calls"""
    return bool(x.tools) and value_at(x.chat_request, "tool_choice") != "none"


@condition
def has_limit(x: Exchange) -> bool:
    """answers to requests with a token limit"""
    return x.turn is not None and x.max_output_tokens is not None


@evidence
def has_usage(x: Exchange) -> bool:
    """answers that report usage"""
    return x.turn is not None and x.turn.usage is not None


@condition
def should_have_usage(x: Exchange) -> bool:
    """answers that have to report usage: complete ones, and streams with `include_usage` that have an end, as they were on the wire"""
    has_end = x.turn is not None and x.turn.finish_reason is not None
    is_asked = has_end and value_at(x.chat_request, "stream_options", "include_usage") is True
    is_whole_or_asked = x.stream is None or is_asked
    return is_complete_answer.holds(x) and not x.from_log and x.answered_by is AnsweredBy.API and is_whole_or_asked


@evidence
def prompt_is_known(x: Exchange) -> bool:
    """exchanges with prompt token ids"""
    return x.parsed_prompt is not None


@evidence
def prompt_was_rendered(x: Exchange) -> bool:
    """exchanges with prompt token ids, or whose prompt another endpoint renders or counts"""
    return x.prompt.ids is not None or x.rendered_prompt is not None or x.counted_prompt is not None


@evidence
def output_is_known(x: Exchange) -> bool:
    """answers with known output tokens (scripted, or returned by the server)"""
    return x.turn is not None and x.output.ids is not None


@evidence
def ids_were_returned(x: Exchange) -> bool:
    """answers with output token ids"""
    return x.turn is not None and x.turn.output_ids is not None


@condition
def stops_at_eos(x: Exchange) -> bool:
    """requests without `ignore_eos`"""
    return not x.ignores_eos


@evidence
def output_is_unknown(x: Exchange) -> bool:
    """answers with unknown output tokens"""
    return x.output.ids is None


@condition
def asks_for_raw_text(x: Exchange) -> bool:
    """requests for the model's text with its special tokens, or unparsed"""
    has_plain_reasoning = value_at(x.chat_request, "reasoning_format") in ("none", "raw")
    return has_plain_reasoning or value_at(x.chat_request, "skip_special_tokens") is False


@condition
def is_about_harmony(x: Exchange) -> bool:
    """requests that mention the Harmony format"""
    return about_harmony.is_about_harmony(x)


@condition
def is_unrelated_to_harmony(x: Exchange) -> bool:
    """requests that neither mention the Harmony format nor ask for raw text"""
    return not is_about_harmony.holds(x) and not asks_for_raw_text.holds(x)


@condition
def wants_one_choice(x: Exchange) -> bool:
    """requests for one choice"""
    return value_at(x.chat_request, "n") in (None, 1)


@evidence
def expected_output_is_known(x: Exchange) -> bool:
    """answers whose output tokens are known to be well-formed, or have a hand-written expectation"""
    return x.turn is not None and x.expected_output is not None


@evidence
def has_row_for_broken_output(x: Exchange) -> bool:
    """answers to malformed output with a hand-written expectation"""
    return x.turn is not None and x.expectation is not None and not x.expectation.is_well_formed


def _expects(x: Exchange, part: str) -> bool:
    return x.expected_output is not None and bool(getattr(x.expected_output, part))


def _expects_part(part: str, description: str) -> Condition[Exchange]:
    return Condition(lambda x: _expects(x, part), description, UnmetReason.BEHAVIOUR)


expects_reasoning = _expects_part("reasoning", "completions with reasoning")
expects_preamble = _expects_part("preambles", "completions with a preamble")
expects_final = _expects_part("finals", "completions with a final message")


@condition
def expects_call(x: Exchange) -> bool:
    """completions with a function call"""
    return _expects(x, "calls") and offered_tools.holds(x)


EFFORTS = ("low", "medium", "high")


@condition
def asks_effort(x: Exchange) -> bool:
    """answers to requests that set one of Harmony's reasoning efforts: low, medium, high"""
    return x.turn is not None and value_at(x.chat_request, "reasoning_effort") in EFFORTS


@condition
def asks_unknown_effort(x: Exchange) -> bool:
    """requests that set a reasoning effort that Harmony does not have"""
    effort = value_at(x.chat_request, "reasoning_effort")
    return isinstance(effort, str) and effort not in EFFORTS and x.response is not None


@evidence
def is_refused_or_shows_prompt(x: Exchange) -> bool:
    """requests that were refused, or have prompt token ids"""
    return was_refused.holds(x) or prompt_is_known.holds(x)


@condition
def requests_new_message(x: Exchange) -> bool:
    """requests that do not end with an assistant message to continue"""
    return value_at(x.messages[-1], "role") != "assistant" if x.messages else True


@series_only
@condition
def has_whole_and_streamed(series: Series) -> bool:
    """requests that were sent both streamed and not"""
    return any(find_pair(series, *names) is not None for names in stream_step_pairs(series))


@series_only
@evidence
def has_same_request_twice(series: Series) -> bool:
    """requests that were sent twice with counted prompts, once streamed, or repeated"""
    return any(None not in map(prompt_count, pair) for pair in same_request_pairs(series))
