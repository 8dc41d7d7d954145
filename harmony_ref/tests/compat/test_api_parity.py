"""The two modules offer the same names, signatures, kinds of attributes, enumeration members and model fields."""

import enum
import inspect

import pydantic
import pytest

from harmony_ref import compat

openai_harmony = pytest.importorskip("openai_harmony")

NOT_OFFERED = {"T"}
"""A type variable that the original leaves lying about and does not use."""


def defined_in(module):
    """The public names that a module defines itself, rather than imports."""
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    }


OFFERED = {name: value for name, value in defined_in(openai_harmony).items() if name not in NOT_OFFERED}
CLASSES = sorted(name for name, value in OFFERED.items() if inspect.isclass(value))
MODELS = [name for name in CLASSES if issubclass(OFFERED[name], pydantic.BaseModel)]
ENUMS = [name for name in CLASSES if issubclass(OFFERED[name], enum.Enum)]

INNER_BASES = {"harmony_ref.errors", "harmony_ref.parsing.stream_machine"}
"""Modules whose classes are bases here, besides those of the original."""


def both(name):
    return getattr(openai_harmony, name), getattr(compat, name)


def parameters(function):
    return [(one.name, one.kind, one.default) for one in inspect.signature(function).parameters.values()]


def public_members(cls):
    """Names and kinds of what a class adds to the library classes that it is made of."""
    inherited = set(dir(pydantic.BaseModel)) | set(dir(enum.Enum)) | set(dir(str)) | set(dir(RuntimeError))
    found = {}
    for name in set(dir(cls)) - inherited:
        if not name.startswith("_"):
            kind = type(inspect.getattr_static(cls, name)).__name__
            found[name] = "property" if kind == "member_descriptor" else kind  # a slot is read as quickly as it gets
    return found


def methods(cls):
    return [name for name, kind in public_members(cls).items() if kind in {"function", "classmethod", "staticmethod"}]


def test_the_original_was_found():
    assert {"Message", "StreamableParser", "RenderOptions", "raise_disallowed_special_token"} < set(OFFERED)
    assert len(OFFERED) == 21


def test_what_a_star_import_brings_is_the_same():
    assert sorted(openai_harmony.__all__) == sorted(compat.__all__)


def test_every_public_name_is_there_and_calls_the_package_its_home():
    assert set(OFFERED) <= set(vars(compat))
    for name in OFFERED:
        assert getattr(compat, name).__module__ == "harmony_ref.compat", name


@pytest.mark.parametrize("name", CLASSES)
def test_classes_have_the_same_public_members_and_bases(name):
    theirs, mine = both(name)
    assert public_members(mine) == public_members(theirs)
    their_bases = [base.__name__ for base in theirs.__mro__]
    assert their_bases == [base.__name__ for base in mine.__mro__ if base.__module__ not in INNER_BASES]


@pytest.mark.parametrize("name", CLASSES)
def test_methods_have_the_same_signatures(name):
    theirs, mine = both(name)
    for method in methods(theirs):
        assert parameters(getattr(mine, method)) == parameters(getattr(theirs, method)), method


@pytest.mark.parametrize("name", sorted(set(OFFERED) - set(ENUMS) - {"HarmonyError"}))
def test_calls_have_the_same_signatures(name):
    theirs, mine = both(name)
    same = [one for one in zip(parameters(theirs), parameters(mine), strict=True) if one[0] == one[1]]
    made_by_a_factory = [one for one in parameters(theirs) if repr(one[2]).startswith("<factory>")]
    assert len(same) + len(made_by_a_factory) >= len(parameters(theirs))
    assert [one[:2] for one in parameters(mine)] == [one[:2] for one in parameters(theirs)]


@pytest.mark.parametrize("name", ENUMS)
def test_enumerations_have_the_same_members_in_every_spelling(name):
    theirs, mine = both(name)
    for spell in (str, repr, format, lambda member: (member.name, member.value, isinstance(member, str))):
        assert [spell(member) for member in mine] == [spell(member) for member in theirs]


def schema_of(model):
    schema = model.model_json_schema()
    for definition in [schema, *schema.get("$defs", {}).values()]:
        definition.pop("description", None)
    return schema


@pytest.mark.parametrize("name", MODELS)
def test_models_have_the_same_fields(name):
    theirs, mine = both(name)
    assert schema_of(mine) == schema_of(theirs)
    assert list(mine.model_fields) == list(theirs.model_fields)
    for field, declared in theirs.model_fields.items():
        ours = mine.model_fields[field]
        assert ours.is_required() == declared.is_required()
        expected = declared.get_default(call_default_factory=True)
        actual = ours.get_default(call_default_factory=True)
        assert repr(actual) == repr(expected), field
    assert {**mine.model_config} == {**theirs.model_config}


def test_the_parser_has_the_attributes_of_the_original():
    read = {name for name, kind in public_members(openai_harmony.StreamableParser).items() if kind == "property"}
    assert read == {
        "current_content",
        "current_role",
        "current_content_type",
        "last_content_delta",
        "messages",
        "tokens",
        "state_data",
        "state",
        "current_recipient",
        "current_channel",
    }
    assert read <= set(dir(compat.StreamableParser))
