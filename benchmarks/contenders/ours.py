"""harmony_ref itself."""

from functools import partial
from operator import attrgetter

from workloads import APPENDED, CALL_SIZES, READ_SIZES, Inputs

from contenders.streams import read_each_time, texts
from harmony_ref import Conversation, Message, Role, StreamParser, parse, render_conversation_for_completion
from harmony_ref.rendering.incremental import GrowingConversation


def tasks(inputs: Inputs):
    def parsed(run):
        return [[message.channel, message.content[0].text] for message in parse(run, Role.ASSISTANT)]

    def parser():
        return StreamParser(Role.ASSISTANT)

    def feed(chunks):
        reader = parser()
        for chunk in chunks:
            reader.feed(chunk)
        return texts(reader)

    def conversation(messages):
        return Conversation.from_dict({"messages": messages})

    table = {
        f"render, {name}": partial(render_conversation_for_completion, conversation(value))
        for name, value in inputs.conversations.items()
    }
    table |= {f"parse, {name}": partial(parsed, run) for name, run in inputs.completions.items()}
    table |= {
        f"feed {size}, {name}": partial(feed, [run[first : first + size] for first in range(0, len(run), size)])
        for size in CALL_SIZES
        for name, run in inputs.streams.items()
    }
    table |= {
        f"read {name} each time, {size}": partial(read_each_time, parser, run, attrgetter(name))
        for name, runs in inputs.read_each_time.items()
        for size, run in zip(READ_SIZES, runs, strict=True)
    }
    longer = conversation([*inputs.growing, APPENDED])
    table["one message more"] = partial(render_conversation_for_completion, longer)
    growing = GrowingConversation(conversation(inputs.growing))
    table["one message more, growing"] = partial(growing.append, Message.from_dict(APPENDED))
    return table
