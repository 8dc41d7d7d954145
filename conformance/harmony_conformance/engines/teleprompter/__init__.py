"""The teleprompter: a gpt-oss checkpoint that says what its prompt tells it to, on any engine, without a plugin.

Its next token is a fixed function of the token 256 places before the last one: most tokens stand for themselves, numbers of three digits stand for special
tokens, single bytes and numbers. So a script, written as text at the end of the last message, comes out of the model token for token. Nothing is trained: the
weights are constructed in a second (`weights`), the arithmetic is in `attention`, and how a script is written is in `script`, which needs only the format.

    harmony-conformance teleprompter build DIR --format gguf --chat-template FILE
    harmony-conformance teleprompter script '<|channel|>final<|message|>Hello!<|return|>'
"""
