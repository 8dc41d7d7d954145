"""Random conversations built through both APIs, rendered and written in every way.

HARMONY_ORACLE_EXAMPLES sets the number of examples per property.
"""

import os

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("HARMONY_ORACLE_EXAMPLES", "200"))
examples = settings(
    max_examples=EXAMPLES,
    derandomize=EXAMPLES <= 1000,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)

WORDS = [
    *["a", "hi", "all", "functions.f", "user", "final", "analysis", "commentary", "json"],
    *["é", "한글", "🫠", "", " ", "\n", "\x00", "'s", '"', "\\"],
    *["<|start|>", "<|constrain|>json"],
]
HALVES = ["\ud800", "\udc00", "\ud83d\ude00", "\ud800\n", "\ud800\ud800", "\udc00\ud800"]
whole_texts = st.lists(st.sampled_from(WORDS) | st.text(max_size=6), max_size=4).map("".join)
texts = st.integers(0, 49).flatmap(lambda number: whole_texts if number else st.sampled_from(HALVES))
optional_texts = st.none() | texts
channels = st.sampled_from([None, None, "analysis", "commentary", "final", "final"]) | optional_texts
roles = st.sampled_from(["USER", "ASSISTANT", "ASSISTANT", "SYSTEM", "DEVELOPER", "TOOL"])

numbers = st.integers(-(2**66), 2**66) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
schemas = st.none() | st.fixed_dictionaries(
    {"type": st.just("object")},
    optional={
        "properties": st.dictionaries(
            texts,
            st.fixed_dictionaries(
                {},
                optional={
                    "type": st.sampled_from(["string", "number", "array", "object"]),
                    "description": texts,
                    "default": json_values,
                    "enum": st.lists(texts, max_size=2),
                },
            ),
            max_size=3,
        ),
        "required": st.lists(texts, max_size=2),
        "x": json_values,
    },
)
tools = st.tuples(texts, texts, schemas)
namespaces = st.tuples(
    st.sampled_from(["functions", "functions", "browser"]) | texts, optional_texts, st.lists(tools, max_size=2)
)
steps = {
    "system": [
        st.tuples(st.just("with_model_identity"), optional_texts),
        st.tuples(st.just("with_reasoning_effort"), st.sampled_from(["LOW", "MEDIUM", "HIGH"])),
        st.tuples(st.just("with_conversation_start_date"), optional_texts),
        st.tuples(st.just("with_knowledge_cutoff"), optional_texts),
        st.tuples(st.just("with_required_channels"), st.lists(texts, max_size=3)),
        st.tuples(st.just("with_channel_config"), st.none() | st.tuples(st.lists(texts, max_size=2), st.booleans())),
        st.tuples(st.just("with_tools"), namespaces),
        st.tuples(st.sampled_from(["with_browser_tool", "with_python_tool"])),
    ],
    "developer": [
        st.tuples(st.just("with_instructions"), optional_texts),
        st.tuples(st.just("with_tools"), namespaces),
        st.tuples(st.just("with_function_tools"), st.lists(tools, max_size=2)),
    ],
}
parts = st.one_of(
    st.tuples(st.just("text"), texts),
    st.tuples(st.just("text"), texts),
    *[st.tuples(st.just(kind), st.lists(st.one_of(*known), max_size=3)) for kind, known in steps.items()],
)
message_plans = st.fixed_dictionaries(
    {
        "role": roles,
        "name": st.none() | st.none() | texts,
        "parts": st.lists(parts, min_size=1, max_size=2),
        "channel": channels,
        "recipient": st.none() | st.none() | texts,
        "content_type": st.none() | st.none() | texts,
    }
)
conversation_plans = st.lists(message_plans, max_size=4)


def tool(api, plan):
    name, description, parameters = plan
    return api.ToolDescription.new(name, description, parameters)


def namespace(api, plan):
    name, description, tools = plan
    return api.ToolNamespaceConfig(name=name, description=description, tools=[tool(api, one) for one in tools])


def argument(api, method, plan):
    match method:
        case "with_reasoning_effort":
            return api.ReasoningEffort[plan]
        case "with_channel_config":
            return plan and api.ChannelConfig(valid_channels=plan[0], channel_required=plan[1])
        case "with_tools":
            return namespace(api, plan)
        case "with_function_tools":
            return [tool(api, one) for one in plan]
        case _:
            return plan


def part(api, plan):
    kind, what = plan
    if kind == "text":
        return api.TextContent(text=what)
    content = (api.SystemContent if kind == "system" else api.DeveloperContent).new()
    for method, *arguments in what:
        changed = getattr(content, method)(*(argument(api, method, one) for one in arguments))
        assert changed is content
    return content


def message(api, plan):
    author = api.Author(role=api.Role[plan["role"]], name=plan["name"])
    built = api.Message.from_author_and_content(author, part(api, plan["parts"][0]))
    for more in plan["parts"][1:]:
        built.adding_content(part(api, more))
    for field in ("channel", "recipient", "content_type"):
        if plan[field] is not None:
            getattr(built, f"with_{field}")(plan[field])
    return built


def conversation(api, plan):
    return api.Conversation.from_messages([message(api, one) for one in plan])


def configs(api):
    return [
        None,
        api.RenderConversationConfig(auto_drop_analysis=True),
        api.RenderConversationConfig(auto_drop_analysis=False),
    ]


def renderings(build):
    """Every way to render what `build` makes, by name."""
    for number, config in enumerate(("default", "drop", "keep")):
        yield (
            f"conversation, {config}",
            lambda api, number=number: api.encoding.render_conversation(build(api), configs(api)[number]),
        )
        yield (
            f"training, {config}",
            lambda api, number=number: api.encoding.render_conversation_for_training(
                build(api), config=configs(api)[number]
            ),
        )
        for role in ("ASSISTANT", "TOOL"):
            yield (
                f"completion by {role}, {config}",
                lambda api, number=number, role=role: api.encoding.render_conversation_for_completion(
                    build(api), api.Role[role], configs(api)[number]
                ),
            )
    for note in (None, False, True):
        yield (
            f"messages, note {note}",
            lambda api, note=note: [
                api.answer(
                    lambda api, one=one: api.encoding.render(
                        one, None if note is None else api.RenderOptions(conversation_has_function_tools=note)
                    )
                )
                for one in build(api).messages
            ],
        )


def writings(build):
    """Every way to write and read it, by name; objects of the two modules are compared by what they print."""
    yield "to_dict", lambda api: repr(build(api).to_dict())
    yield "to_json", lambda api: build(api).to_json()
    yield "repr", lambda api: repr(build(api))
    yield "model_dump", lambda api: repr(build(api).model_dump())
    yield "model_dump_json", lambda api: build(api).model_dump_json()
    yield "round trip", lambda api: repr(api.Conversation.from_json(build(api).to_json()))
    yield (
        "equality",
        lambda api: (build(api) == build(api), build(api) == api.Conversation.from_json(build(api).to_json())),
    )
    yield "unset", lambda api: repr(build(api).model_dump(exclude_unset=True))


def compare(official, ours, ways):
    for name, way in ways:
        expected = official.answer(way)
        assert ours.answer(way) == expected, name


@examples
@given(plan=conversation_plans)
def test_a_conversation_renders_to_the_same_ids_or_error(official, ours, plan):
    compare(official, ours, renderings(lambda api: conversation(api, plan)))


@examples
@given(plan=conversation_plans)
def test_a_conversation_is_written_and_read_in_the_same_way(official, ours, plan):
    compare(official, ours, writings(lambda api: conversation(api, plan)))
