"""The errors of `harmony_ref.huggingface.response_schema`; the tree is drawn there."""

from enum import StrEnum

from harmony_ref.errors import HarmonyError


class SchemaProblem(StrEnum):
    """What is wrong with a rule, or with the value that it met."""

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
    """A response that a response schema does not read.

    Attributes:
        problem: what is wrong.
        pointer: JSON pointer, into the schema, to the rule.
        expected: what would have been right.
    """

    def __init__(self, problem: SchemaProblem, found: str, *, pointer: str, expected: str) -> None:
        super().__init__(f"{pointer or '(the whole schema)'}: {problem}: {found}; expected {expected}")
        self.problem = problem
        self.pointer = pointer
        self.expected = expected


class SchemaRuleError(ResponseSchemaError):
    """The rule can not be followed, whatever the response."""


class ResponseMismatchError(ResponseSchemaError):
    """The rule can be followed, and the value that it met is not what it is for."""
