"""Seconds of CPU time from nothing imported to the first token, in a fresh process: `first_use.py CONTENDER`."""

import json
import sys
import time


def ours():
    import harmony_ref

    return harmony_ref.encode("a")


def bare():
    import tiktoken

    return tiktoken.get_encoding("o200k_harmony").encode_ordinary("a")


def library():
    import openai_harmony

    return openai_harmony.load_harmony_encoding("HarmonyGptOss").encode("a", disallowed_special=())


def compat():
    from harmony_ref import compat

    return compat.load_harmony_encoding("HarmonyGptOss").encode("a", disallowed_special=())


CONTENDERS = {function.__name__: function for function in (ours, bare, library, compat)}

if __name__ == "__main__":
    first = CONTENDERS[sys.argv[1]]
    start = time.process_time()
    assert first() == [64]
    print(json.dumps(time.process_time() - start))
