"""Build a small value that is valid for a JSON schema, for unscripted output under a schema."""

import re

from harmony_conformance.json_value import Json, JsonObject, dumps, integer, items, members, text

LARGEST_INSTANCE = 100_000
"""Maximum characters of a value as JSON."""

_DELIMITERS = 2
"""Characters around a value: quotation marks or brackets; of a name: a colon and a comma."""

_LITERAL = re.compile(r"\^((?:[^\\^$.|?*+()\[\]{}]|\\[^A-Za-z0-9])*+)\$")


class InstanceSizeError(ValueError):
    """The smallest value that this server builds for a schema is larger than LARGEST_INSTANCE."""

    def __init__(self) -> None:
        super().__init__(
            f"expected a schema of values of at most {LARGEST_INSTANCE} characters of JSON, got a larger one"
        )


def instance(schema: Json) -> Json:
    """Return a value with the required members only; ignore formats, references, and non-literal patterns.

    Raises:
        InstanceSizeError: The value would be too large. Nothing of its size is allocated.
    """
    return _Builder().build(schema)


class _Builder:
    """Builds one value; `_remaining` is the number of characters that are left for the rest of it.

    Every rule spends at least the characters of its value, and those of a pattern that is no literal.
    """

    def __init__(self) -> None:
        self._remaining = LARGEST_INSTANCE

    def build(self, schema: Json) -> Json:
        """Return a value for a schema."""
        self._spend(_DELIMITERS)
        definition = members(schema)
        if "const" in definition:
            return self._copy(definition["const"])
        for name in ("enum", "examples"):
            if values := items(definition.get(name)):
                return self._copy(values[0])
        if "default" in definition:
            return self._copy(definition["default"])
        for variants in ("oneOf", "anyOf"):
            if choices := items(definition.get(variants)):
                return self.build(choices[0])
        return self._of_type(definition)

    def _of_type(self, schema: JsonObject) -> Json:
        kind = schema.get("type")
        names = items(kind) if isinstance(kind, list) else [kind]
        match names[0] if names else None:
            case "array":
                count = integer(schema.get("minItems")) or 0
                self._spend(count)
                return [self.build(schema.get("items")) for _ in range(count)]
            case "string":
                pattern = text(schema.get("pattern"))
                if plain := _LITERAL.fullmatch(pattern):
                    return self._copy(re.sub(r"\\(.)", r"\1", plain[1]))
                self._spend(len(pattern))
                length = integer(schema.get("minLength")) or 1
                self._spend(length)
                return "x" * length
            case "integer" | "number":
                return self._copy(integer(schema.get("minimum")) or 0)
            case "boolean":
                return self._copy(False)
            case "null":
                return self._copy(None)
            case _:
                properties = members(schema.get("properties"))
                return {
                    self._name(name): self.build(properties.get(text(name))) for name in items(schema.get("required"))
                }

    def _name(self, name: Json) -> str:
        self._spend(len(dumps(text(name))) + _DELIMITERS)
        return text(name)

    def _copy(self, value: Json) -> Json:
        """Return the value of a schema; a schema of an array can repeat it."""
        self._spend(len(dumps(value)))
        return value

    def _spend(self, characters: int) -> None:
        self._remaining -= max(characters, 0)
        if self._remaining < 0:
            raise InstanceSizeError
