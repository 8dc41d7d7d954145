"""The errors of `harmony_ref.huggingface.response_schema`, which shows their hierarchy."""

from enum import StrEnum

from harmony_ref.errors import HarmonyError


class SchemaProblem(StrEnum):
    """An error in a rule, or in the value that it was applied to."""

    NOT_A_RULE = "not a rule"
    UNKNOWN_TYPE = "unknown type"
    BAD_PATTERN = "bad pattern"
    BAD_REPLACEMENT = "bad replacement"
    NO_GROUP = "no group"
    SEVERAL_GROUPS = "several groups"
    NO_KEY_AND_VALUE = "no groups key and value"
    ITERATOR_OUTSIDE_ARRAY = "iterator outside an array"
    KEY_VALUE_OUTSIDE_OBJECT = "key-value outside an object"
    UNKNOWN_PARSER = "unknown parser"
    BAD_TRANSFORM = "bad transform"
    NO_ITEMS = "no items"
    NO_PROPERTIES = "no properties"
    NOT_TEXT = "not text"
    NOT_JSON = "not JSON"
    NOT_AN_OBJECT = "not an object"
    NOT_AN_ARRAY = "not an array"
    NOT_A_STRING = "not a string"
    NOT_AN_INTEGER = "not an integer"
    NOT_A_NUMBER = "not a number"
    NOT_A_BOOLEAN = "not a boolean"
    WRONG_LENGTH = "wrong length"
    MISSING = "missing"
    TOO_DEEP = "too deep"


class ResponseSchemaError(HarmonyError):
    """A response that a response schema cannot parse.

    `pointer` is the JSON pointer of the rule in the schema, `expected` a phrase for a correct rule or value.
    """

    def __init__(self, problem: SchemaProblem, found: str, *, pointer: str, expected: str) -> None:
        super().__init__(f"{pointer or '(the whole schema)'}: {problem}: {found}; expected {expected}")
        self.problem = problem
        self.pointer = pointer
        self.expected = expected


class SchemaRuleError(ResponseSchemaError):
    """The rule is invalid for every response."""


class ResponseMismatchError(ResponseSchemaError):
    """The rule is valid, but does not fit the value."""
