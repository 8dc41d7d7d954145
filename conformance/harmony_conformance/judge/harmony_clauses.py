"""Named clauses of the Harmony guide, of the API reference and of HTTP. Every check cites one, and a MUST needs a quotation.

Quotations are verbatim; […] marks omissions.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from harmony_conformance.judge.api_clauses import OTHER_APIS
from harmony_conformance.judge.clause import Clause

_GUIDE = "OpenAI cookbook, OpenAI harmony response format: "
_RAW_COT = "OpenAI cookbook, How to handle the raw chain of thought in gpt-oss: "
_CHAT = "OpenAI API reference, Chat Completions: "

_TABLE = (
    Clause(
        id="harmony#special-tokens",
        source=_GUIDE + "Special Tokens",
        quotation="The model uses a set of special tokens to identify the structure of your input.",
    ),
    Clause(
        id="harmony#roles",
        source=_GUIDE + "Roles",
        quotation="Every message that the model processes has a role associated with it.",
    ),
    Clause(
        id="harmony#analysis",
        source=_GUIDE + "Channels",
        quotation="Messages in the analysis channel do not adhere to the same safety standards as final messages do. Avoid showing these to end-users.",
    ),
    Clause(
        id="harmony#final",
        source=_GUIDE + "Channels",
        quotation="Messages tagged in the final channel are messages intended to be shown to the end-user and represent the responses from the model.",
    ),
    Clause(
        id="harmony#message-format",
        source=_GUIDE + "Message format",
        quotation="The general structure of a message is as follows: <|start|>{header}<|message|>{content}<|end|>",
    ),
    Clause(
        id="harmony#prompt-end",
        source=_GUIDE + "Chat conversation format",
        quotation="the most basic chat format consists of a `user` message and the beginning of an `assistant` message.",
    ),
    Clause(
        id="harmony#stop-tokens",
        source=_GUIDE + "Chat conversation format",
        quotation="Once its done generating it will stop with either a `<|return|>` token indicating it's done generating the final answer, or `<|call|>` "
        "indicating that a tool call needs to be performed. In either way this indicates that you should stop inference.",
    ),
    Clause(
        id="harmony#identity",
        source=_GUIDE + "System message format",
        quotation="The identity of the model — This should always stay as `You are ChatGPT, a large language model trained by OpenAI.` If you want to "
        "change the identity of the model, use the instructions in the developer message.",
    ),
    Clause(
        id="harmony#system-form",
        source=_GUIDE + "System message format",
        quotation="For the best performance stick to this format as closely as possible.",
    ),
    Clause(
        id="harmony#channels-of-calls",
        source=_GUIDE + "System message format",
        quotation="If functions calls are present in the developer message section, use: […] # Valid channels: analysis, commentary, final. Channel must be "
        "included for every message.\nCalls to these tools must go to the commentary channel: 'functions'.",
    ),
    Clause(
        id="harmony#built-in-tools",
        source=_GUIDE + "Built-in tools",
        quotation="These tools should be defined in the system message not in the developer message by adding a `# Tools` section.",
    ),
    Clause(
        id="harmony#dates",
        source=_GUIDE + "System message format",
        quotation="We use the system message to define: […] Meta dates — Specifically the `Knowledge cutoff:` and the `Current date:`",
    ),
    Clause(
        id="harmony#response-formats",
        source=_GUIDE + "Structured output",
        quotation="To control the output behavior of the model, you can define a response format at the end of the developer message with the following "
        "structure: # Response Formats ## {format name} // {description or context} {schema}<|end|>",
        differs="Servers with constrained sampling may omit the section.",
    ),
    Clause(
        id="harmony#system",
        source=_GUIDE + "Reasoning",
        quotation="By default, the model will do medium level reasoning. To control the reasoning you can specify in the system message the reasoning "
        "level as `low`, `medium`, or `high`. The recommended format is: Reasoning: high",
    ),
    Clause(
        id="harmony#developer",
        source=_GUIDE + "Developer message format",
        quotation='The developer message represents what is commonly considered the "system prompt". It contains the instructions that are provided to '
        "the model and optionally a list of function tools available for use",
        differs="vLLM can put the instructions into the system message (VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS).",
    ),
    Clause(
        id="harmony#tools",
        source=_GUIDE + "Defining available tools",
        quotation="All functions that are available to the model should be defined in the developer message in a dedicated `Tools` section.",
    ),
    Clause(
        id="harmony#drop-reasoning",
        source=_GUIDE + "Handling reasoning output in subsequent sampling",
        quotation="In general, you should drop any previous CoT content on subsequent sampling if the responses by the assistant ended in a message to "
        "the `final` channel.",
        differs="openai-harmony 0.0.8 drops only the reasoning before the first final; the Hugging Face template drops the reasoning of all earlier turns.",
    ),
    Clause(
        id="harmony#keep-reasoning",
        source=_GUIDE + "Handling reasoning output in subsequent sampling",
        quotation="The exception for this is tool/function calling. The model is able to call tools as part of its chain-of-thought and because of that, "
        "we should pass the previous chain-of-thought back in as input for subsequent sampling.",
    ),
    Clause(
        id="harmony#receiving-calls",
        source=_GUIDE + "Receiving tool calls",
        quotation="If the model decides to call a tool it will define a `recipient` in the header of the message using the format `to={name}`. […] The "
        "recipient might be defined in the role or channel section of the header.",
    ),
    Clause(
        id="harmony#tool-messages",
        source=_GUIDE + "Handling tool calls",
        quotation="A tool message has the following format: <|start|>{toolname} to=assistant<|channel|>commentary<|message|>{output}<|end|>",
        differs="The Hugging Face template quotes the output as JSON; both official libraries write it raw. Ollama's template names no channel.",
    ),
    Clause(
        id="harmony#preambles",
        source=_GUIDE + "Preambles",
        quotation="it will generate an assistant message on the `commentary` channel that, unlike the chain-of-thought, is intended to be shown to the "
        "end-user.",
    ),
    Clause(
        id="raw-cot#output",
        source=_RAW_COT + "Chat Completions API",
        quotation="The raw CoT is exposed as a `reasoning` property on the message in the output. For delta events the delta has a `reasoning` property",
        differs="Servers also use reasoning_content and thinking.",
    ),
    Clause(
        id="chat#messages",
        source=_CHAT + "messages",
        quotation="A list of messages comprising the conversation so far.",
    ),
    Clause(
        id="chat#id",
        source=_CHAT + "the chat completion object, id",
        quotation="A unique identifier for the chat completion.",
    ),
    Clause(id="chat#message", source=_CHAT + "choices", quotation="A chat completion message generated by the model."),
    Clause(
        id="chat#finish-reason",
        source=_CHAT + "finish_reason",
        quotation="The reason the model stopped generating tokens. This will be `stop` if the model hit a natural stop point or a provided stop sequence, "
        "`length` if the maximum number of tokens specified in the request was reached, […] `tool_calls` if the model called a tool",
    ),
    Clause(
        id="chat#arguments",
        source=_CHAT + "tool_calls.function.arguments",
        quotation="The arguments to call the function with, as generated by the model in JSON format. Note that the model does not always generate valid "
        "JSON, and may hallucinate parameters not defined by your function schema. Validate the arguments in your code before calling your function.",
    ),
    Clause(
        id="chat#tool-call",
        source=_CHAT + "tool_calls",
        quotation="The tool calls generated by the model, such as function calls. […] id: The ID of the tool call. […] type: The type of the tool. "
        "Currently, only `function` is supported.",
    ),
    Clause(
        id="chat#tool-call-id",
        source=_CHAT + "messages, tool message",
        quotation="tool_call_id: Tool call that this message is responding to.",
    ),
    Clause(
        id="chat#tool-choice",
        source=_CHAT + "tool_choice",
        quotation="`none` means the model will not call any tool and instead generates a message.",
    ),
    Clause(
        id="chat#tool-choice-required",
        source=_CHAT + "tool_choice",
        quotation="`required` means the model must call one or more tools. Specifying a particular tool via "
        '`{"type": "function", "function": {"name": "my_function"}}` forces the model to call that tool.',
    ),
    Clause(
        id="chat#allowed-tools",
        source=_CHAT + "tool_choice, allowed_tools",
        quotation="Constrains the tools available to the model to a pre-defined set. `auto` allows the model to pick from among the allowed tools and "
        "generate a message. `required` requires the model to call one or more of the allowed tools.",
        differs="Few servers support it: a refusal that names the parameter declares a limit.",
    ),
    Clause(
        id="chat#usage",
        source=_CHAT + "usage",
        quotation="prompt_tokens: Number of tokens in the prompt. […] completion_tokens: Number of tokens in the generated completion. […] total_tokens: "
        "Total number of tokens used in the request (prompt + completion).",
    ),
    Clause(
        id="chat#max-tokens",
        source=_CHAT + "max_completion_tokens",
        quotation="An upper bound for the number of tokens that can be generated for a completion, including visible output tokens and reasoning tokens.",
    ),
    Clause(
        id="chat#response-format",
        source=_CHAT + "response_format",
        quotation='Setting to `{ "type": "json_schema", "json_schema": {...} }` enables Structured Outputs which ensures the model will match your '
        "supplied JSON schema. […] "
        'Setting to `{ "type": "json_object" }` enables the older JSON mode, which ensures the message the model generates is valid JSON.',
    ),
    Clause(
        id="chat#strict-answer",
        source=_CHAT + "response_format, json_schema, strict",
        quotation="Whether to enable strict schema adherence when generating the output. If set to true, the model will always follow the exact schema "
        "defined in the `schema` field.",
    ),
    Clause(
        id="chat#strict-call",
        source=_CHAT + "tools, function, strict",
        quotation="Whether to enable strict schema adherence when generating the function call. If set to true, the model will follow the exact schema "
        "defined in the `parameters` field.",
    ),
    Clause(
        id="chat#parallel-tool-calls",
        source="OpenAI function calling guide, Parallel function calling",
        quotation="The model may choose to call multiple functions in a single turn. You can prevent this by setting `parallel_tool_calls` to `false`, "
        "which ensures exactly zero or one tool is called.",
    ),
    Clause(
        id="chat#n",
        source=_CHAT + "n",
        quotation="How many chat completion choices to generate for each input message. Note that you will be charged based on the number of generated "
        "tokens across all of the choices.",
    ),
    Clause(
        id="chat#stop",
        source=_CHAT + "stop",
        quotation="Up to 4 sequences where the API will stop generating further tokens. The returned text will not contain the stop sequence.",
    ),
    Clause(
        id="chat#logprobs",
        source=_CHAT + "logprobs",
        quotation="Whether to return log probabilities of the output tokens or not. If true, returns the log probabilities of each output token returned "
        "in the `content` of `message`.",
    ),
    Clause(
        id="chat#top-logprobs",
        source=_CHAT + "top_logprobs",
        quotation="An integer between 0 and 20 specifying the maximum number of most likely tokens to return at each token position, each with an "
        "associated log probability. In some cases, the number of returned tokens may be fewer than requested.",
    ),
    Clause(
        id="chat#seed",
        source=_CHAT + "seed",
        quotation="our system will make a best effort to sample deterministically, such that repeated requests with the same `seed` and parameters should "
        "return the same result. Determinism is not guaranteed, and you should refer to the `system_fingerprint` response parameter to monitor changes in "
        "the backend.",
    ),
    Clause(
        id="chat#stream",
        source=_CHAT + "stream",
        quotation="If set to true, the model response data will be streamed to the client as it is generated using server-sent events.",
    ),
    Clause(
        id="chat#chunk",
        source=_CHAT + "the chat completion chunk object",
        quotation="A unique identifier for the chat completion. Each chunk has the same ID.",
    ),
    Clause(
        id="chat#chunk-choices",
        source=_CHAT + "the chat completion chunk object, choices",
        quotation="A list of chat completion choices. Can contain more than one elements if `n` is greater than 1. Can also be empty for the last chunk if "
        'you set `stream_options: {"include_usage": true}`. […] index: The index of the choice in the list of choices.',
    ),
    Clause(
        id="chat#stream-usage",
        source=_CHAT + "stream_options.include_usage",
        quotation="If set, an additional chunk will be streamed before the `data: [DONE]` message. The `usage` field on this chunk shows the token usage "
        "statistics for the entire request, and the `choices` field will always be an empty array.",
    ),
    Clause(
        id="native#refusal",
        source="Ollama's api/types.go, StatusError; TGI's router/src/lib.rs, ErrorResponse",
        quotation='ErrorMessage string `json:"error"`; pub error: String, pub error_type: String',
    ),
    Clause(
        id="tgi#finish-reason",
        source="Text Generation Inference, Python client, FinishReason",
        quotation="number of generated tokens == `max_new_tokens` […] the model generated its end of sequence token […] the model generated a text included in "
        "`stop_sequences`",
    ),
    Clause(
        id="tgi#chat-tokenize",
        source="Text Generation Inference, API reference, POST /chat_tokenize",
        quotation="Template and tokenize ChatRequest",
    ),
    Clause(
        id="http#close",
        source="RFC 9112, section 9.5",
        quotation="Implementations SHOULD constantly monitor open connections for a received closure signal and respond to it as appropriate, since prompt "
        "closure of both sides of a connection enables allocated system resources to be reclaimed. A client, server, or proxy MAY close the transport "
        "connection at any time.",
    ),
    Clause(
        id="http#client-error",
        source="RFC 9110, section 15.5",
        quotation="The 4xx (Client Error) class of status code indicates that the client seems to have erred. Except when responding to a HEAD request, the "
        "server SHOULD send a representation containing an explanation of the error situation",
    ),
    Clause(
        id="http#server-error",
        source="RFC 9110, section 15.6",
        quotation="The 5xx (Server Error) class of status code indicates that the server is aware that it has erred or is incapable of performing the "
        "requested method.",
    ),
)

CLAUSES: Mapping[str, Clause] = MappingProxyType({clause.id: clause for clause in (*_TABLE, *OTHER_APIS)})
