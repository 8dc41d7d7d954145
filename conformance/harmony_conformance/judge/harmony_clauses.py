"""Named clauses of the Harmony guide, of the API reference and of HTTP. Every check cites one, and a MUST needs a quotation.

Quotations are verbatim; […] marks omissions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from harmony_conformance.judge.api_clauses import OTHER_APIS
from harmony_conformance.judge.clause import Clause
from harmony_conformance.judge.responses_clauses import RESPONSES_CLAUSES

_GUIDE = "OpenAI cookbook, OpenAI harmony response format: "
_RAW_COT = "OpenAI cookbook, How to handle the raw chain of thought in gpt-oss: "
_CHAT = "OpenAI API reference, Chat Completions: "

_TABLE: dict[str, Clause] = {
    "harmony#special-tokens": Clause(
        _GUIDE + "Special Tokens", "The model uses a set of special tokens to identify the structure of your input."
    ),
    "harmony#roles": Clause(_GUIDE + "Roles", "Every message that the model processes has a role associated with it."),
    "harmony#analysis": Clause(
        _GUIDE + "Channels",
        "Messages in the analysis channel do not adhere to the same safety standards as final messages do. Avoid showing these to end-users.",
    ),
    "harmony#final": Clause(
        _GUIDE + "Channels",
        "Messages tagged in the final channel are messages intended to be shown to the end-user and represent the responses from the model.",
    ),
    "harmony#message-format": Clause(
        _GUIDE + "Message format",
        "The general structure of a message is as follows: <|start|>{header}<|message|>{content}<|end|>",
    ),
    "harmony#prompt-end": Clause(
        _GUIDE + "Chat conversation format",
        "the most basic chat format consists of a `user` message and the beginning of an `assistant` message.",
    ),
    "harmony#stop-tokens": Clause(
        _GUIDE + "Chat conversation format",
        "Once its done generating it will stop with either a `<|return|>` token indicating it's done generating the final answer, or `<|call|>` "
        "indicating that a tool call needs to be performed. In either way this indicates that you should stop inference.",
    ),
    "harmony#identity": Clause(
        _GUIDE + "System message format",
        "The identity of the model — This should always stay as `You are ChatGPT, a large language model trained by OpenAI.` If you want to "
        "change the identity of the model, use the instructions in the developer message.",
    ),
    "harmony#system-form": Clause(
        _GUIDE + "System message format", "For the best performance stick to this format as closely as possible."
    ),
    "harmony#channels-of-calls": Clause(
        _GUIDE + "System message format",
        "If functions calls are present in the developer message section, use: […] # Valid channels: analysis, commentary, final. Channel must be "
        "included for every message.\nCalls to these tools must go to the commentary channel: 'functions'.",
    ),
    "harmony#built-in-tools": Clause(
        _GUIDE + "Built-in tools",
        "These tools should be defined in the system message not in the developer message by adding a `# Tools` section.",
    ),
    "harmony#dates": Clause(
        _GUIDE + "System message format",
        "We use the system message to define: […] Meta dates — Specifically the `Knowledge cutoff:` and the `Current date:`",
    ),
    "harmony#response-formats": Clause(
        _GUIDE + "Structured output",
        "To control the output behavior of the model, you can define a response format at the end of the developer message with the following "
        "structure: # Response Formats ## {format name} // {description or context} {schema}<|end|>",
        differs="Servers with constrained sampling may omit the section.",
    ),
    "harmony#system": Clause(
        _GUIDE + "Reasoning",
        "By default, the model will do medium level reasoning. To control the reasoning you can specify in the system message the reasoning "
        "level as `low`, `medium`, or `high`. The recommended format is: Reasoning: high",
    ),
    "harmony#developer": Clause(
        _GUIDE + "Developer message format",
        'The developer message represents what is commonly considered the "system prompt". It contains the instructions that are provided to '
        "the model and optionally a list of function tools available for use",
        differs="vLLM can put the instructions into the system message (VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS).",
    ),
    "harmony#developer-form": Clause(
        _GUIDE + "Developer message format",
        "If you are not using function tool calling your developer message would just look like this: <|start|>developer<|message|># Instructions\n\n"
        "{instructions}<|end|>",
    ),
    "harmony#tools": Clause(
        _GUIDE + "Defining available tools",
        "All functions that are available to the model should be defined in the developer message in a dedicated `Tools` section.",
    ),
    "harmony#drop-reasoning": Clause(
        _GUIDE + "Handling reasoning output in subsequent sampling",
        "In general, you should drop any previous CoT content on subsequent sampling if the responses by the assistant ended in a message to "
        "the `final` channel.",
        differs="openai-harmony 0.0.8 drops only the reasoning before the first final; the Hugging Face template drops the reasoning of all earlier turns.",
    ),
    "harmony#keep-reasoning": Clause(
        _GUIDE + "Handling reasoning output in subsequent sampling",
        "The exception for this is tool/function calling. The model is able to call tools as part of its chain-of-thought and because of that, "
        "we should pass the previous chain-of-thought back in as input for subsequent sampling.",
    ),
    "harmony#receiving-calls": Clause(
        _GUIDE + "Receiving tool calls",
        "If the model decides to call a tool it will define a `recipient` in the header of the message using the format `to={name}`. […] The "
        "recipient might be defined in the role or channel section of the header.",
    ),
    "harmony#tool-messages": Clause(
        _GUIDE + "Handling tool calls",
        "A tool message has the following format: <|start|>{toolname} to=assistant<|channel|>commentary<|message|>{output}<|end|>",
        differs="The Hugging Face template quotes the output as JSON; both official libraries write it raw. Ollama's template names no channel.",
    ),
    "harmony#preambles": Clause(
        _GUIDE + "Preambles",
        "it will generate an assistant message on the `commentary` channel that, unlike the chain-of-thought, is intended to be shown to the "
        "end-user.",
    ),
    "raw-cot#output": Clause(
        _RAW_COT + "Chat Completions API",
        "The raw CoT is exposed as a `reasoning` property on the message in the output. For delta events the delta has a `reasoning` property",
        differs="Servers also use reasoning_content and thinking.",
    ),
    "raw-cot#chat-output": Clause(
        _RAW_COT + "Chat Completions API",
        "The raw CoT is exposed as a `reasoning` property on the message in the output. For delta events the delta has a `reasoning` property",
        differs="Servers also use reasoning_content and thinking.",
    ),
    "chat#messages": Clause(_CHAT + "messages", "A list of messages comprising the conversation so far."),
    "chat#id": Clause(_CHAT + "the chat completion object, id", "A unique identifier for the chat completion."),
    "chat#message": Clause(_CHAT + "choices", "A chat completion message generated by the model."),
    "chat#finish-reason": Clause(
        _CHAT + "finish_reason",
        "The reason the model stopped generating tokens. This will be `stop` if the model hit a natural stop point or a provided stop sequence, "
        "`length` if the maximum number of tokens specified in the request was reached, […] `tool_calls` if the model called a tool",
    ),
    "chat#arguments": Clause(
        _CHAT + "tool_calls.function.arguments",
        "The arguments to call the function with, as generated by the model in JSON format. Note that the model does not always generate valid "
        "JSON, and may hallucinate parameters not defined by your function schema. Validate the arguments in your code before calling your function.",
    ),
    "chat#tool-call": Clause(
        _CHAT + "tool_calls",
        "The tool calls generated by the model, such as function calls. […] id: The ID of the tool call. […] type: The type of the tool. "
        "Currently, only `function` is supported.",
    ),
    "chat#call-id": Clause(_CHAT + "tool_calls, id", "id: The ID of the tool call."),
    "chat#call-type": Clause(
        _CHAT + "tool_calls, type", "type: The type of the tool. Currently, only `function` is supported."
    ),
    "chat#call-name": Clause(
        _CHAT + "tool_calls, function, name",
        "function: The function that the model called. […] name: The name of the function to call.",
    ),
    "chat#tool-call-id": Clause(
        _CHAT + "messages, tool message", "tool_call_id: Tool call that this message is responding to."
    ),
    "chat#tool-choice": Clause(
        _CHAT + "tool_choice", "`none` means the model will not call any tool and instead generates a message."
    ),
    "chat#tool-choice-required": Clause(
        _CHAT + "tool_choice",
        "`required` means the model must call one or more tools. Specifying a particular tool via "
        '`{"type": "function", "function": {"name": "my_function"}}` forces the model to call that tool.',
    ),
    "chat#allowed-tools": Clause(
        _CHAT + "tool_choice, allowed_tools",
        "Constrains the tools available to the model to a pre-defined set. `auto` allows the model to pick from among the allowed tools and "
        "generate a message. `required` requires the model to call one or more of the allowed tools.",
        differs="Few servers support it: a refusal that names the parameter declares a limit.",
    ),
    "chat#usage": Clause(
        _CHAT + "usage",
        "prompt_tokens: Number of tokens in the prompt. […] completion_tokens: Number of tokens in the generated completion. […] total_tokens: "
        "Total number of tokens used in the request (prompt + completion). […] reasoning_tokens: Tokens generated by the model for reasoning.",
    ),
    "chat#max-tokens": Clause(
        _CHAT + "max_completion_tokens, and finish_reason",
        "An upper bound for the number of tokens that can be generated for a completion, including visible output tokens and reasoning tokens. […] "
        "finish_reason: […] `length` if the maximum number of tokens specified in the request was reached",
    ),
    "chat#response-format": Clause(
        _CHAT + "response_format",
        'Setting to `{ "type": "json_schema", "json_schema": {...} }` enables Structured Outputs which ensures the model will match your '
        "supplied JSON schema. […] "
        'Setting to `{ "type": "json_object" }` enables the older JSON mode, which ensures the message the model generates is valid JSON.',
    ),
    "chat#strict-answer": Clause(
        _CHAT + "response_format, json_schema, strict",
        "Whether to enable strict schema adherence when generating the output. If set to true, the model will always follow the exact schema "
        "defined in the `schema` field.",
    ),
    "chat#strict-call": Clause(
        _CHAT + "tools, function, strict",
        "Whether to enable strict schema adherence when generating the function call. If set to true, the model will follow the exact schema "
        "defined in the `parameters` field.",
    ),
    "chat#parallel-tool-calls": Clause(
        "OpenAI function calling guide, Parallel function calling",
        "The model may choose to call multiple functions in a single turn. You can prevent this by setting `parallel_tool_calls` to `false`, "
        "which ensures exactly zero or one tool is called.",
    ),
    "chat#n": Clause(
        _CHAT + "n",
        "How many chat completion choices to generate for each input message. Note that you will be charged based on the number of generated "
        "tokens across all of the choices.",
    ),
    "chat#stop": Clause(
        _CHAT + "stop",
        "Up to 4 sequences where the API will stop generating further tokens. The returned text will not contain the stop sequence.",
    ),
    "chat#logprobs": Clause(
        _CHAT + "logprobs",
        "Whether to return log probabilities of the output tokens or not. If true, returns the log probabilities of each output token returned "
        "in the `content` of `message`.",
    ),
    "chat#top-logprobs": Clause(
        _CHAT + "top_logprobs",
        "An integer between 0 and 20 specifying the maximum number of most likely tokens to return at each token position, each with an "
        "associated log probability. In some cases, the number of returned tokens may be fewer than requested.",
    ),
    "chat#seed": Clause(
        _CHAT + "seed",
        "our system will make a best effort to sample deterministically, such that repeated requests with the same `seed` and parameters should "
        "return the same result. Determinism is not guaranteed, and you should refer to the `system_fingerprint` response parameter to monitor changes in "
        "the backend.",
    ),
    "chat#stream": Clause(
        _CHAT + "stream",
        "If set to true, the model response data will be streamed to the client as it is generated using server-sent events.",
    ),
    "chat#chunk": Clause(
        _CHAT + "the chat completion chunk object",
        "id: A unique identifier for the chat completion. Each chunk has the same ID. […] created: The Unix timestamp (in seconds) of when the chat "
        "completion was created. Each chunk has the same timestamp. […] model: The model to generate the completion. […] object: The object type, "
        "which is always `chat.completion.chunk`.",
    ),
    "chat#delta-role": Clause(
        _CHAT + "the chat completion chunk object, choices, delta",
        "A chat completion delta generated by streamed model responses. […] role: The role of the author of this message.",
    ),
    "chat#chunk-choices": Clause(
        _CHAT + "the chat completion chunk object, choices",
        "A list of chat completion choices. Can contain more than one elements if `n` is greater than 1. Can also be empty for the last chunk if "
        'you set `stream_options: {"include_usage": true}`. […] index: The index of the choice in the list of choices.',
    ),
    "chat#stream-usage": Clause(
        _CHAT + "stream_options.include_usage",
        "If set, an additional chunk will be streamed before the `data: [DONE]` message. The `usage` field on this chunk shows the token usage "
        "statistics for the entire request, and the `choices` field will always be an empty array.",
    ),
    "native#refusal": Clause(
        "Ollama's api/types.go, StatusError; TGI's router/src/lib.rs, ErrorResponse",
        'ErrorMessage string `json:"error"`; pub error: String, pub error_type: String',
    ),
    "tgi#finish-reason": Clause(
        "Text Generation Inference, Python client, FinishReason",
        "number of generated tokens == `max_new_tokens` […] the model generated its end of sequence token […] the model generated a text included in "
        "`stop_sequences`",
    ),
    "tgi#chat-tokenize": Clause(
        "Text Generation Inference, API reference, POST /chat_tokenize", "Template and tokenize ChatRequest"
    ),
    "clients#error": Clause(
        "OpenAI's client for TypeScript, core/error.ts, APIError.generate",
        "const error = (errorResponse as Record<string, any>)?.['error'];",
    ),
    "http#close": Clause(
        "RFC 9112, section 9.5",
        "Implementations SHOULD constantly monitor open connections for a received closure signal and respond to it as appropriate, since prompt "
        "closure of both sides of a connection enables allocated system resources to be reclaimed. A client, server, or proxy MAY close the transport "
        "connection at any time.",
    ),
    "http#status": Clause(
        "RFC 9110, section 15",
        "2xx (Successful): The request was successfully received, understood, and accepted […] 4xx (Client Error): The request contains bad syntax or "
        "cannot be fulfilled […] 5xx (Server Error): The server failed to fulfill an apparently valid request",
    ),
    "http#client-error": Clause(
        "RFC 9110, section 15.5",
        "The 4xx (Client Error) class of status code indicates that the client seems to have erred. Except when responding to a HEAD request, the "
        "server SHOULD send a representation containing an explanation of the error situation",
    ),
    "http#server-error": Clause(
        "RFC 9110, section 15.6",
        "The 5xx (Server Error) class of status code indicates that the server is aware that it has erred or is incapable of performing the "
        "requested method.",
    ),
}

CLAUSES: Mapping[str, Clause] = MappingProxyType(
    {name: replace(clause, id=name) for name, clause in (_TABLE | RESPONSES_CLAUSES | OTHER_APIS).items()}
)
