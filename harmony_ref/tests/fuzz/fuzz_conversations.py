"""Random JSON schemas, declarations, messages and conversations in the wire form."""

import copy

from fuzz_texts import fields, texts, texts_with_surrogates
from hypothesis import strategies as st

roles = st.sampled_from(["user", "assistant", "assistant", "system", "developer", "tool"])
channels = st.sampled_from([None, None, "analysis", "commentary", "final", "final", "Final", ""]) | fields


def without_none(fields):
    return {name: value for name, value in fields.items() if value is not None}


def members(**kinds):
    return st.fixed_dictionaries({}, optional=kinds)


numbers = (
    st.integers(-(2**66), 2**66)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.floats(-1e6, 1e6).map(lambda value: round(value, 4))
    | st.sampled_from([1.0, -0.0, 1e15, 1e16, 1e17, 1e-4, 1e-5, 1e-7, 5e-324, 1.7976931348623157e308, 2**64, 10**30])
)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
type_names = st.sampled_from(
    ["string", "number", "integer", "boolean", "array", "object", "object", "null", "file", ""]
)
property_names = st.sampled_from(["a", "b", "nullx"]) | texts
words = st.lists(st.sampled_from(["a", "b", "null", "nullify"]) | texts, max_size=3)
descriptions = st.sampled_from(["D", "D", "D", "E", "L1\nL2", ""]) | st.just("D") | texts
unwritable = st.sampled_from([float("nan"), float("inf"), 10**400])
defaults = st.integers(0, 29).flatmap(lambda number: unwritable if number == 0 else json_values | st.sampled_from("ab"))
comments = {
    "description": descriptions,
    "default": defaults,
    "enum": words | st.lists(json_values, max_size=3),
    "nullable": st.booleans(),
}
property_comments = comments | {"title": texts, "examples": st.lists(texts | json_values, max_size=2)}


def typed(names, more=comments):
    return st.builds(lambda name, rest: {**rest, "type": name}, names, members(**more))


def arrays(more):
    return st.builds(
        lambda items, rest: {**rest, **items, "type": "array"},
        members(items=property_schemas | st.booleans()),
        members(**more),
    )


def unions(more):
    return st.builds(
        lambda variants, rest: {**rest, "oneOf": variants}, st.lists(variants_of_unions, max_size=3), members(**more)
    )


def objects(more):
    return st.builds(
        lambda properties, rest: {**rest, "type": "object", "properties": properties},
        st.dictionaries(property_names, property_schemas, max_size=3),
        members(required=words, **{name: more[name] for name in more if name not in {"default", "enum"}}),
    )


def anything_but_a_schema():
    """The keywords of a schema with values of any type."""
    return members(
        type=type_names | st.lists(type_names | st.integers(), max_size=3) | json_values,
        description=descriptions | json_values,
        title=texts | json_values,
        default=json_values,
        enum=words | json_values | st.lists(json_values, max_size=3),
        nullable=st.booleans() | json_values,
        examples=st.lists(json_values, max_size=3) | json_values,
        required=words | json_values,
        properties=st.dictionaries(property_names, type_schemas, max_size=2) | json_values,
        items=type_schemas,
        oneOf=st.lists(type_schemas, max_size=2) | json_values,
        anyOf=st.lists(type_schemas, max_size=2),
        const=json_values,
    )


type_schemas = typed(type_names)
several_types = st.lists(type_names | st.integers(), max_size=3)
variants_of_unions = st.deferred(
    lambda: (
        typed(type_names) | typed(type_names) | objects(comments) | arrays(comments) | unions(comments) | json_values
    )
)
property_schemas = st.deferred(
    lambda: st.one_of(
        typed(type_names, property_comments),
        typed(st.just("string"), property_comments),
        typed(several_types, property_comments),
        unions(property_comments),
        arrays(property_comments),
        objects(property_comments),
        anything_but_a_schema(),
        json_values,
    )
)
schemas = st.one_of(
    objects(comments),
    objects(comments),
    objects(comments),
    unions(comments),
    arrays(comments),
    typed(type_names | several_types),
    anything_but_a_schema(),
    json_values,
)

tool_descriptions = st.builds(
    lambda name, description, parameters: without_none(
        {"name": name, "description": description, "parameters": parameters}
    ),
    texts,
    texts,
    st.none() | schemas,
)
namespaces = st.builds(
    lambda name, description, tools: without_none({"name": name, "description": description, "tools": tools}),
    texts,
    fields,
    st.lists(tool_descriptions, max_size=2),
)
tool_maps = st.dictionaries(st.sampled_from(["functions", "functions", "browser"]) | texts, namespaces, max_size=3)
channel_configs = st.fixed_dictionaries(
    {"valid_channels": st.lists(texts, max_size=3), "channel_required": st.booleans()}
)
system_contents = members(
    model_identity=fields,
    reasoning_effort=st.sampled_from([None, "Low", "Medium", "High"]),
    conversation_start_date=fields,
    knowledge_cutoff=fields,
    channel_config=st.none() | channel_configs,
    tools=st.none() | tool_maps,
).map(lambda content: {"type": "system_content", **content})
developer_contents = members(instructions=fields, tools=st.none() | tool_maps).map(
    lambda content: {"type": "developer_content", **content}
)
text_contents = texts.map(lambda text: {"type": "text", "text": text})


@st.composite
def messages(draw):
    role = draw(roles)
    own = {"system": system_contents, "developer": developer_contents}.get(role, text_contents)
    parts = st.one_of(own, own, text_contents) if draw(st.booleans()) else own
    stray = system_contents | developer_contents
    content = draw(texts | st.lists(parts | stray if draw(st.integers(0, 19)) == 0 else parts, max_size=3))
    name = draw(texts if role == "tool" and draw(st.integers(0, 9)) else fields)
    return without_none(
        {
            "role": role,
            "name": name,
            "recipient": draw(fields),
            "content": content,
            "channel": draw(channels),
            "content_type": draw(fields),
        }
    )


conversations = st.lists(messages(), max_size=5)
conversations_with_surrogates = texts_with_surrogates.map(lambda text: [{"role": "user", "content": text}])


@st.composite
def wire_messages(draw):
    """Messages such as a client sends: calls, replies, reasoning and answers in any order."""
    role = draw(st.sampled_from(["user", "assistant", "assistant", "assistant", "tool"]))
    message = {"role": role, "content": draw(texts)}
    if role == "tool":
        message |= {"name": "functions.f", "recipient": "assistant"}
    if role != "user":
        message["channel"] = draw(st.sampled_from(["analysis", "commentary", "final", "final"]))
    if role == "assistant" and message["channel"] == "commentary":
        message |= {"recipient": "functions.f", "content_type": draw(st.sampled_from(["<|constrain|>json", "json"]))}
    return message


turns = st.lists(wire_messages(), max_size=9)


def places_of(value, path=()):
    """The path of every member of a JSON value."""
    yield path
    if isinstance(value, dict):
        for name, member in value.items():
            yield from places_of(member, (*path, name))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from places_of(member, (*path, index))


@st.composite
def malformed_conversations(draw):
    """Conversations of which one member is missing, or is another JSON value than it should be."""
    conversation = copy.deepcopy(draw(st.lists(messages(), min_size=1, max_size=2)))
    *before, last = draw(st.sampled_from([place for place in places_of(conversation) if place]))
    owner = conversation
    for step in before:
        owner = owner[step]
    if draw(st.booleans()):
        del owner[last]
    else:
        owner[last] = draw(json_values)
    return conversation
