"""The teleprompter: a gpt-oss checkpoint that repeats the script in its prompt, on any engine, without a plugin.

Its next token is a fixed function of the token 256 places before the last one. Most tokens map to themselves; numbers of three digits map to special
tokens, single bytes and numbers. A script, written as text at the end of the last message, is therefore generated token for token. Nothing is trained:
`weights` constructs the checkpoint in a second, `attention` has the arithmetic, and `script` writes scripts, without numpy.

    harmony-conformance teleprompter build DIR --format gguf --chat-template FILE
    harmony-conformance teleprompter script '<|channel|>final<|message|>Hello!<|return|>'
"""
