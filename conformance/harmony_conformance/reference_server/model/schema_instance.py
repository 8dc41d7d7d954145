"""Build a small value that is valid for a JSON schema, for unscripted output under a schema."""

import re

from harmony_conformance.json_value import Json, JsonObject, integer, items, members, text

_LITERAL = re.compile(r"\^((?:[^\\^$.|?*+()\[\]{}]|\\[^A-Za-z0-9])*)\$")


def instance(schema: Json) -> Json:
    """Return a value with the required members only; ignore formats, references, and non-literal patterns."""
    definition = members(schema)
    if "const" in definition:
        return definition["const"]
    for name in ("enum", "examples"):
        if values := items(definition.get(name)):
            return values[0]
    if "default" in definition:
        return definition["default"]
    for variants in ("oneOf", "anyOf"):
        if choices := items(definition.get(variants)):
            return instance(choices[0])
    return _of_type(definition)


def _of_type(schema: JsonObject) -> Json:
    kind = schema.get("type")
    names = items(kind) if isinstance(kind, list) else [kind]
    match names[0] if names else None:
        case "array":
            return [instance(schema.get("items")) for _ in range(integer(schema.get("minItems")) or 0)]
        case "string":
            plain = _LITERAL.fullmatch(text(schema.get("pattern")))
            return re.sub(r"\\(.)", r"\1", plain[1]) if plain else "x" * (integer(schema.get("minLength")) or 1)
        case "integer" | "number":
            return integer(schema.get("minimum")) or 0
        case "boolean":
            return False
        case "null":
            return None
        case _:
            properties = members(schema.get("properties"))
            return {text(name): instance(properties.get(text(name))) for name in items(schema.get("required"))}
