"""What an input and its answers are an example of, told from the input and the library's answers alone."""

import json
import re
from itertools import pairwise

from fuzz_conversations import places_of

ERRORS = {
    "a tool without a name": "Tools should have a name!",
    "system content in another role": "SystemContent may only appear",
    "developer content in another role": "DeveloperContent may only appear",
    "a lone surrogate": "unexpected end of hex escape",
    "a lone surrogate before an escape": "lone leading surrogate",
    "a missing member": "missing field",
    "a member of another type": "invalid type",
    "a name that is none of a few": "unknown variant",
    "a number beyond all doubles": "number out of range",
    "a number that is none": "expected value",
    "a token between messages": "while expecting start token",
    "the end inside a header": "Unexpected EOS",
    "a header that is no text": "could not decode header",
    "a channel without a value": "no channel value",
    "a header without a role": "did not contain a role",
    "an unknown role": "Unknown role",
    "words left in a header": "unexpected tokens remaining",
    "an unknown id": "Invalid token for decoding",
    "a character that stops early": "incomplete utf-8",
    "bytes that are not UTF-8": re.compile(r"invalid utf-8 sequence of \d bytes"),
}
START, RETURN, CONSTRAIN, CALL = 200006, 200002, 200003, 200012
STOPS = {200007, RETURN, CALL}
REPLACEMENT = "\ufffd"


def of_error(text):
    for kind, sign in ERRORS.items():
        if sign.search(text) if isinstance(sign, re.Pattern) else sign in text:
            return f"error: {kind}"
    return f"error: {text}"


def of_answer(answer):
    return of_error(answer["err"][1]) if "err" in answer else "answered"


def of_rendering(case, answers):
    messages = case[0] if isinstance(case[0], list) else [case[0]]
    if "<|" in json.dumps(messages):
        yield "typed markers"
    for question, theirs, _ in answers:
        yield of_answer(theirs)
        ids = theirs.get("ok", ())
        if CONSTRAIN in ids:
            yield "a constrained content type"
        if CALL in ids:
            yield "a call"
        if RETURN in ids:
            yield "an example for training that ends in return"
        if "conversation" in question and ids:
            kept = ids.count(START)
            reasoning = any(message.get("channel") == "analysis" for message in messages)
            if kept < len(messages):
                yield "reasoning left out"
            elif reasoning:
                yield "reasoning kept, not asked to drop" if "True" not in question else "reasoning kept, asked to drop"


def of_completion(case, answers):
    run, _ = case
    strict, lenient = (theirs for _, theirs, _ in answers)
    for answer, name in ((strict, "strict"), (lenient, "lenient")):
        yield f"{name}: {of_answer(answer)}"
    if strict != lenient and "ok" in lenient:
        yield "recovered by the lenient parser"
    messages = strict.get("ok", ())
    texts = [message["content"] for message in messages]
    if len(messages) > 1:
        yield "several messages"
    if any(REPLACEMENT in text for text in texts):
        yield "invalid UTF-8 in content"
    if any("<|" in text for text in texts):
        yield "special tokens in content"
    if any("<|" in message.get(name, "").removeprefix("<|constrain|>") for message in messages for name in FIELDS):
        yield "special tokens in a header"
    if messages and run[-1] not in STOPS:
        yield "cut off"
    for message in messages:
        yield f"role {message['role']}"
        for name in FIELDS:
            if name in message:
                yield f"a {name}"


FIELDS = ("recipient", "channel", "content_type", "name")


def of_stream(case, answers):
    run, _, lengths = case
    steps = [theirs for question, theirs, _ in answers if "after token" in question]
    errors = [step["error"] for step in steps if step["error"] is not None]
    yield from map(of_error, errors)
    for before, after in pairwise(steps):
        if before["content"] == after["content"] != "" and after["delta"] is None:
            yield "a token that completes no character"
    if any(step["error"] is not None and step["messages"] != steps[-1]["messages"] for step in steps):
        yield "a message after an error"
    if any(REPLACEMENT in (step["delta"] or "") for step in steps):
        yield "invalid UTF-8 in a delta"
    if any("<|" in (step["delta"] or "") for step in steps):
        yield "special tokens in a delta"
    if any(REPLACEMENT in message["content"] for step in steps for message in step["messages"]):
        yield "invalid UTF-8 in a message"
    if any(step["messages"] for step in steps):
        yield "a finished message"
    if len(lengths) > 1 and sum(lengths) < len(run):
        yield "fed in several runs"


def of_text(text, answers):
    for sign, kind in (
        (r"<\|\w+\|>", "special tokens"),
        (r"[^\x00-\x7f]", "beyond ASCII"),
        (r"[\x1c-\x1f\x85\xa0\u2028\u3000]", "unusual white space"),
        (r"\s\s", "a run of white space"),
    ):
        if re.search(sign, text):
            yield kind


def of_decoding(_run, answers):
    for question, theirs, _ in answers:
        yield f"{question}: {of_answer(theirs)}"


def of_schema(schema, answers):
    yield of_answer(answers[0][1])
    for place in places_of(schema):
        value = schema
        for step in place:
            value = value[step]
        if isinstance(value, dict):
            yield from rules_of(value, is_property=len(place) > 1 and place[-2] == "properties")


def rules_of(schema, *, is_property):
    """The rules of the facts on TypeScript that apply to this schema, by what they say."""
    where = "property" if is_property else "type"
    kind, variants, description = schema.get("type"), schema.get("oneOf"), schema.get("description")
    if isinstance(variants, list):
        yield f"{where}: {'oneOf' if variants else 'an empty oneOf'}"
        yield from rules_of_variants(schema, variants, where)
    elif isinstance(kind, list):
        yield f"{where}: a list of types" if any(isinstance(name, str) for name in kind) else f"{where}: no types"
    elif isinstance(kind, str):
        yield f"{where}: {kind if kind in TYPES else 'another type'}"
        yield from rules_of_type(schema, kind, where)
    else:
        yield f"{where}: no type"
    if is_property and isinstance(variants, list):
        return
    if is_property:
        yield from rules_of_comments(schema)
    if isinstance(description, str) and kind == "object":
        yield "a described object"
    if schema.get("nullable") is True and is_property:
        yield "nullable but for the word null" if "null" in json.dumps(schema.get("enum")) else "nullable"


TYPES = {"string", "number", "integer", "boolean", "array", "object"}


def rules_of_type(schema, kind, where):
    if kind == "string" and isinstance(schema.get("enum"), list):
        strings = [choice for choice in schema["enum"] if isinstance(choice, str)]
        yield "enum of strings" if strings else "enum without strings"
        if 0 < len(strings) < len(schema["enum"]):
            yield "enum of strings and others"
    if kind == "array":
        items = schema.get("items")
        yield "an array of anything" if "items" not in schema else "an array of items"
        if isinstance(items, dict) and isinstance(items.get("oneOf"), list):
            yield "an array of a union"
    if kind == "object" and isinstance(schema.get("properties"), dict) and schema["properties"]:
        names = schema.get("required")
        wanted = isinstance(names, list) and any(
            name in schema["properties"] for name in names if isinstance(name, str)
        )
        yield "a required property" if wanted else "no required property"


def rules_of_comments(schema):
    description, examples, default = schema.get("description"), schema.get("examples"), schema.get("default")
    if isinstance(schema.get("title"), str):
        yield "a title"
    if isinstance(description, str):
        yield "a description of several lines" if "\n" in description else "a description"
    if isinstance(examples, list) and examples:
        yield "examples" if any(isinstance(example, str) for example in examples) else "examples without strings"
    if "default" in schema:
        choices = schema.get("enum")
        yield f"default {type(default).__name__}" + (" of an enum" if isinstance(choices, list) and choices else "")


def rules_of_variants(schema, variants, where):
    description = schema.get("description")
    if "default" in schema and where == "property":
        yield "a default beside oneOf"
    for index, variant in enumerate(variants):
        if not isinstance(variant, dict):
            continue
        own = variant.get("description")
        if isinstance(own, str):
            place = "first" if index == 0 else "later"
            yield f"{where}: the {place} variant is described" + (" as the whole" if own == description else "")
        if "default" in variant:
            yield f"{where}: a variant has a default"
        if variant.get("nullable") is True:
            yield f"{where}: a variant is nullable"
