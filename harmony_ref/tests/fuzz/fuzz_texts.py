"""Random texts: words of the format, its markers typed out, all sorts of white space, and anything."""

from hypothesis import strategies as st

WORDS = [
    "a",
    "hi",
    "json",
    "all",
    "code",
    "functions.f",
    "to=",
    "to=functions.f",
    "to=b",
    "user",
    "assistant",
    "system",
    "developer",
    "tool",
    "User",
    "user:bob",
    "assistantassistant",
    "analysis",
    "commentary",
    "final",
    "Final",
    "browser.search",
    "123456",
    "null",
    "é",
    "한글",
    "🫠",
    "'q",
    '"q"',
    "\\",
    "<",
    ">",
    "",
    " ",
    "  ",
    "hi there",
    "x y z",
    "\n",
    "\t",
    "\r\n",
    "\x0b",
    "\x0c",
    "\x1c",
    "\x85",
    "\xa0",
    "\u3000",
    "\u2028",
    "e\u0301",
    "\u200d",
    "\u200b",
    "\x00",
    "\x01",
    "'s",
]
MARKERS = [
    "<|start|>",
    "<|end|>",
    "<|message|>",
    "<|channel|>",
    "<|constrain|>",
    "<|return|>",
    "<|call|>",
    "<|endoftext|>",
    "<|constrain|>json",
    "<|constrain|> json",
    "<|channel|>final",
    "<|reserved_200013|>",
    "<|endofprompt|>",
    "<|refusal|>",
]

texts = st.lists(st.sampled_from(WORDS + MARKERS) | st.text(max_size=8), max_size=5).map("".join)
fields = st.none() | st.sampled_from(WORDS + MARKERS) | texts
spaced_texts = st.lists(
    st.sampled_from([*"    \t\n\r\x0b\x85\xa0\u2028\u3000\x1c", "  ", *"aZ7-/'é한", "\u0301", *MARKERS]), max_size=24
).map("".join)
texts_with_surrogates = st.text(
    st.characters(codec=None, categories=["Cs", "Ll", "Cc"]) | st.sampled_from("\ud83d\ude00 \n"), max_size=6
)
