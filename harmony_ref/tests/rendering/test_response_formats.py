"""`# Response Formats`: the guide's section for structured answers, which openai_harmony has no API for."""

import pytest

from harmony_ref import Conversation, DeveloperContent, Message, ResponseFormat, Role, ToolDescription, developer_text

SHOPPING_LIST = {
    "properties": {
        "items": {"type": "array", "description": "entries on the shopping list", "items": {"type": "string"}}
    },
    "type": "object",
}


def test_the_guides_example_stands_at_the_end_of_the_developer_message() -> None:
    content = DeveloperContent(instructions="You are a helpful shopping assistant").with_response_format(
        ResponseFormat(name="shopping_list", schema=SHOPPING_LIST)
    )
    assert developer_text(content) == (
        "# Instructions\n\nYou are a helpful shopping assistant\n\n# Response Formats\n\n## shopping_list\n\n"
        '{"properties":{"items":{"type":"array","description":"entries on the shopping list",'
        '"items":{"type":"string"}}},"type":"object"}'
    )


@pytest.mark.parametrize(
    ("content", "text"),
    [
        pytest.param(
            DeveloperContent(response_formats=(ResponseFormat(name="a", schema=True, description="one\ntwo"),)),
            "# Response Formats\n\n## a\n\n// one\n// two\ntrue",
            id="every line of a description is a comment",
        ),
        pytest.param(
            DeveloperContent(
                response_formats=(ResponseFormat(name="a", schema={}), ResponseFormat(name="b", schema={}))
            ),
            "# Response Formats\n\n## a\n\n{}\n\n## b\n\n{}",
            id="several formats",
        ),
        pytest.param(
            DeveloperContent(response_formats=(ResponseFormat(name="a", schema={}),)).with_function_tools(
                [ToolDescription(name="f", description="")]
            ),
            "# Tools\n\n## functions\n\nnamespace functions {\n\ntype f = () => any;\n\n} // namespace functions"
            "\n\n# Response Formats\n\n## a\n\n{}",
            id="after the tools",
        ),
    ],
)
def test_text(content: DeveloperContent, text: str) -> None:
    assert developer_text(content) == text


def test_formats_survive_the_wire_form() -> None:
    conversation = Conversation(
        messages=[
            Message(
                author=Role.DEVELOPER,
                content=DeveloperContent(
                    response_formats=(
                        ResponseFormat(name="a", schema=None, description="d"),
                        ResponseFormat(name="b", schema={}),
                    )
                ),
            )
        ]
    )
    assert Conversation.from_dict(conversation.to_dict()) == conversation
