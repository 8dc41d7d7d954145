import json

import pytest

from harmony_ref.tokenizer import vocabulary


class Oracle:
    """openai-harmony 0.0.8 through its raw bindings, which take and return JSON."""

    def __init__(self, inner, parser_class):
        self.inner = inner
        self.parser_class = parser_class

    @staticmethod
    def answer(function, *arguments):
        """`{"ok": value}` or `{"err": [exception class, text]}`, so that two implementations compare with ==."""
        try:
            return {"ok": function(*arguments)}
        except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
            return {"err": [type(error).__name__, str(error)]}

    def render(self, message, note):
        options = {"conversation_has_function_tools": note}
        return self.answer(self.inner.render, json.dumps(message), options)

    def render_all(self, mode, messages, auto_drop, role):
        config = None if auto_drop is None else {"auto_drop_analysis": auto_drop}
        conversation = json.dumps({"messages": messages})
        if mode == "completion":
            return self.answer(self.inner.render_conversation_for_completion, conversation, role, config)
        suffix = "_for_training" if mode == "training" else ""
        return self.answer(getattr(self.inner, f"render_conversation{suffix}"), conversation, config)

    def parse(self, tokens, role, strict):
        answer = self.answer(self.inner.parse_messages_from_completion_tokens, tokens, role, strict)
        return {"ok": json.loads(answer["ok"])} if "ok" in answer else answer

    def typescript(self, schema):
        tool = {"name": "f", "description": "", "parameters": schema}
        tools = {"n": {"name": "n", "tools": [tool]}}
        message = {"role": "developer", "content": [{"type": "developer_content", "tools": tools}]}
        answer = self.render(message, note=False)
        if "err" in answer:
            return answer
        text = self.inner.decode_utf8(answer["ok"])
        before, after = "type f = (_: ", ") => any;\n\n} // namespace n<|end|>"
        return {"ok": text[text.index(before) + len(before) : text.rindex(after)]}

    def parser(self, role, strict):
        return self.parser_class(self.inner, role, strict)


@pytest.fixture(scope="session")
def oracle(tmp_path_factory):
    openai_harmony = pytest.importorskip("openai_harmony")
    folder = tmp_path_factory.mktemp("vocabulary")
    (folder / "o200k_base.tiktoken").write_bytes(vocabulary.read_vocabulary_file())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_ENCODINGS_BASE", str(folder))
        encoding = openai_harmony.load_harmony_encoding("HarmonyGptOss")
    return Oracle(encoding._inner, openai_harmony._PyStreamableParser)
