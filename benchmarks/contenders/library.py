"""openai_harmony: openai-harmony 0.0.8 and oss-harmony 0.0.11, which share its API."""

import json
from functools import partial
from operator import attrgetter

import openai_harmony
from workloads import APPENDED, READ_SIZES, Inputs

from contenders.streams import read_each_time, stream

ASSISTANT = openai_harmony.Role.ASSISTANT


def tasks(inputs: Inputs, api=openai_harmony):
    encoding = api.load_harmony_encoding("HarmonyGptOss")

    def render(conversation):
        return encoding.render_conversation_for_completion(conversation, api.Role.ASSISTANT)

    def parse(run):
        messages = encoding.parse_messages_from_completion_tokens(run, api.Role.ASSISTANT)
        return [[message.channel, message.content[0].text] for message in messages]

    def parser():
        return api.StreamableParser(encoding, api.Role.ASSISTANT)

    def conversation(messages):
        return api.Conversation.from_json(json.dumps({"messages": messages}))

    table = {f"render, {name}": partial(render, conversation(value)) for name, value in inputs.conversations.items()}
    table |= {f"parse, {name}": partial(parse, run) for name, run in inputs.completions.items()}
    table |= {f"stream, {name}": partial(stream, parser, run) for name, run in inputs.streams.items()}
    table |= {
        f"read {name} each time, {size}": partial(read_each_time, parser, run, attrgetter(name))
        for name, runs in inputs.read_each_time.items()
        for size, run in zip(READ_SIZES, runs, strict=True)
    }
    longer = conversation([*inputs.growing, APPENDED])
    table["one message more"] = partial(render, longer)
    return table
