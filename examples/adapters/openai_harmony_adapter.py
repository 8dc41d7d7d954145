"""The official library openai-harmony, judged by its own golden vectors:

    harmony-conformance golden run --command 'python examples/adapters/openai_harmony_adapter.py'

The bindings are used directly. They take and return JSON, and the library's Python classes lose members.
"""

import json
import sys

from openai_harmony import HarmonyEncodingName, Role, StreamableParser, load_harmony_encoding

ENCODING = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
BINDINGS = ENCODING._inner  # noqa: SLF001


def render(request):
    messages = request.get("spelled_out") or request["messages"]  # the library has no response formats
    if request["mode"] == "message":
        options = {"conversation_has_function_tools": request.get("conversation_has_function_tools", False)}
        ids = BINDINGS.render(json.dumps(messages[0]), options)
    else:
        conversation = json.dumps({"messages": messages})
        config = {"auto_drop_analysis": request.get("auto_drop_analysis", True)}
        match request["mode"]:
            case "conversation":
                ids = BINDINGS.render_conversation(conversation, config)
            case "training":
                ids = BINDINGS.render_conversation_for_training(conversation, config)
            case "completion":
                role = request.get("next_role", "assistant")
                ids = BINDINGS.render_conversation_for_completion(conversation, role, config)
    return {"tokens": ids, "text": BINDINGS.decode_utf8(ids)}


def parse(request):
    if request["strictness"] == "lenient":
        raise NotImplementedError
    is_strict = request["strictness"] == "strict"
    parsed = BINDINGS.parse_messages_from_completion_tokens(request["tokens"], request["role"], is_strict)
    return {"messages": json.loads(parsed)}


def stream(request):
    parser = StreamableParser(
        ENCODING, request["role"] and Role(request["role"]), strict=request["strictness"] == "strict"
    )
    observed = {
        "state": lambda: json.loads(parser._inner.state)["state"],  # noqa: SLF001
        "role": lambda: parser.current_role and parser.current_role.value,
        "channel": lambda: parser.current_channel,
        "recipient": lambda: parser.current_recipient,
        "content_type": lambda: parser.current_content_type,
        "delta": lambda: parser.last_content_delta,
        "content": lambda: parser.current_content,
        "finished": lambda: len(json.loads(parser._inner.messages)),  # noqa: SLF001
        "data": lambda: json.loads(parser._inner.state),  # noqa: SLF001
    }

    def step(feed, *token):
        try:
            feed(*token)
        except RuntimeError as refusal:
            return {**show(), "error": str(refusal)}
        return show()

    def show():
        return {name: observed[name]() for name in request["observe"]}

    before = show()
    steps = [step(parser.process, token) for token in request["tokens"]]
    end = step(parser.process_eos)
    return {"before": before, "steps": steps, "end": end, "messages": json.loads(parser._inner.messages)}  # noqa: SLF001


KINDS = {"render": render, "parse": parse, "stream": stream}

for line in sys.stdin:
    request = json.loads(line)
    try:
        answer = KINDS[request["kind"]](request)
    except (KeyError, NotImplementedError):
        answer = {"unsupported": True}
    except (RuntimeError, ValueError) as refusal:
        answer = {"error": str(refusal)}
    print(json.dumps({"id": request["id"], **answer}), flush=True)
