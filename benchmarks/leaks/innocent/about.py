"""Innocent answers about the format, or with its markers or those of other models."""

from __future__ import annotations

import json
import random

from innocent import sources
from innocent.case import Call, Case
from innocent.made import prose, sentence, thought_of
from innocent.words import MARKERS, OTHER_MARKERS, TOPICS

_ASKS = (
    "Explain OpenAI's Harmony response format.", "How does gpt-oss format its messages?", "Which special tokens does gpt-oss use?", "What is the analysis channel for?",
    "How is a tool call written in the Harmony format?", "What does a chat template do?", "Show me a raw Harmony prompt.", "Which stop tokens do I need for gpt-oss?",
    "Write a parser for harmony messages.", "What do <|start|> and <|end|> mean?", "Document our renderer of chat prompts: roles, channels, special tokens.",
)  # fmt: skip
_EXAMPLES = (
    "<|start|>user<|message|>What is 2 + 2?<|end|>", "<|channel|>analysis<|message|>User asks: 2 + 2.<|end|>\n<|start|>assistant<|channel|>final<|message|>4.<|return|>",
    '<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city":"Paris"}<|call|>', "<|start|>{header}<|message|>{content}<|end|>",
    "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.<|end|>", "<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>{}<|end|>",
    "analysisUser asks: 2 + 2.assistantfinal4.", "<|channel|>final<|message|>", "<|start|>assistant",
)  # fmt: skip
_FACTS = (
    "Each message begins with <|start|> and ends with <|end|>.", "`<|return|>` ends the answer, `<|call|>` ends a tool call.", "The channel (analysis, commentary or final) follows <|channel|>.",
    'The header is between "<|start|>" and "<|message|>".', "Never show the analysis channel to users.", "`<|constrain|>json` says that the arguments are JSON.",
    "In stored history <|return|> becomes <|end|>.", "Tokens: <|start|>, <|end|>, <|message|>, <|channel|>, <|constrain|>, <|return|>, <|call|>.", "Skipping special tokens leaves `assistantfinal` behind.",
)  # fmt: skip


def explained(rng: random.Random) -> str:
    facts = rng.sample(_FACTS, rng.randint(1, 4))
    example = rng.choice(_EXAMPLES)
    shown = rng.choice(
        (
            f"```\n{example}\n```",
            f"`{example.splitlines()[0]}`",
            example,
            f"    {example}",
            f'"{example.splitlines()[0]}"',
        )
    )
    parts = [" ".join(facts), shown] if rng.random() < 0.8 else facts
    rng.shuffle(parts)
    return "\n\n".join(parts)


def on_harmony(rng: random.Random, number: int) -> Case:
    return Case(
        user=rng.choice(_ASKS),
        content=explained(rng),
        reasoning=rng.choice((thought_of(rng), "Explain that <|channel|>analysis<|message|> begins a thought.")),
    )


def own_page(rng: random.Random, number: int) -> Case:
    texts = sources.own_paragraphs()
    page, text = texts[(number * 3) % len(texts)]
    user = rng.choice(
        (
            f"What does {page} of harmony-conformance say?",
            "Summarise the documentation of the Harmony format checker.",
            f"Write the next paragraph of {page}.",
        )
    )
    return Case(user=user, content=text, reasoning=thought_of(rng))


def own_code(rng: random.Random, number: int) -> Case:
    texts = sources.own_functions()
    name, code = texts[(number * 5) % len(texts)]
    return Case(
        user=rng.choice((f"Show me {name}.", "Write that function.", "Add a test.")),
        content=rng.choice((f"```python\n{code}\n```", f"{sentence(rng)}\n\n```\n{code}\n```")),
        reasoning=thought_of(rng),
    )


def own_code_bare(rng: random.Random, number: int) -> Case:
    texts = sources.own_functions()
    name, code = texts[(number * 7 + 3) % len(texts)]
    user = rng.choice(
        (
            f"Show me {name}, which handles Harmony messages.",
            "Write the function that parses special tokens.",
            "Next function of the chat template renderer, no code block.",
        )
    )
    return Case(user=user, content=code, reasoning=thought_of(rng))


def asked_for(rng: random.Random, number: int) -> Case:
    marker, other = rng.sample(MARKERS, 2)
    ask, content = rng.choice(
        ((f"What is {marker}?", f"{marker} is a special token."), (f"Repeat exactly: {marker}", marker), (f"Say hello and end with {marker}", f"Hello!{marker}"), (f"Start your answer with {marker}", f"{marker}Hello!"),
         (f"Which comes first, {marker} or {other}?", f"{marker} comes before {other}."), (f"Concatenate {marker} and {other}.", f"{marker}{other}"),
         ("Print <|start|>assistant<|channel|>final<|message|>Hi", "<|start|>assistant<|channel|>final<|message|>Hi"), (f"Escape {marker} for HTML.", marker.replace("<", "&lt;").replace(">", "&gt;")),
         (f"Put {marker} into a JSON string.", json.dumps({"token": marker})), (f"Why does my output end in {marker}?", f"Because {marker} is not stripped.\n\n{prose(rng)}\n{marker}"))
    )  # fmt: skip
    return Case(user=ask, content=content, reasoning=rng.choice((thought_of(rng), f"The user quotes {marker}.")))


def pasted(rng: random.Random, number: int) -> Case:
    leak = rng.choice(
        (
            f"analysisWe need to answer about {rng.choice(TOPICS)}.assistantfinal{sentence(rng)}",
            f"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>{sentence(rng)}",
            'commentary to=functions.search json{"q":1}',
        )
    )
    ask = rng.choice(
        (f"My server answered this, why?\n\n{leak}", f"What is wrong here: {leak}", f"Clean this up: {leak}")
    )
    content = rng.choice(
        (
            f"That is a raw completion:\n\n{leak}\n\nThe words before the answer are channel names.",
            f"`{leak}` was not parsed.",
            f"{leak}\n\n↑ this is the thought, glued to the answer.",
            leak,
            f'You sent "{leak}".',
        )
    )
    return Case(user=ask, content=content, reasoning=thought_of(rng))


def unasked(rng: random.Random, number: int) -> Case:
    marker = rng.choice(MARKERS)
    content = rng.choice(
        (f"{prose(rng, 2)} My training data has tokens such as `{marker}`.", f'I see a stray "{marker}" in the file.', f"```\n{rng.choice(_EXAMPLES)}\n```\n{sentence(rng)}", f"The text holds {marker} in the middle of a sentence, which is odd.",
         f"Between {marker} and the next word there is nothing. {prose(rng, 2)}", f"`{rng.choice(_EXAMPLES).splitlines()[0]}` is in line 3.", f"- first\n- {marker} second\n- third", f"{sentence(rng)} The stray word in your file is {marker}",
            f"{marker} stands in line {rng.randint(2, 90)} of your file; take it out.",
            f"Line 7 reads '{marker}', remove it.")
    )  # fmt: skip
    return Case(
        user=rng.choice(
            ("What is wrong with my file?", "Tell me something about yourself.", "Review this text, please.")
        ),
        content=content,
        reasoning=thought_of(rng),
    )


def other_models(rng: random.Random, number: int) -> Case:
    one, other = rng.sample(OTHER_MARKERS, 2)
    content = rng.choice(
        (f"{one}user\nHi{other}\n{one}assistant\nHello", f"Llama uses {one}, others {other}.", "GPT-2 separates documents with <|endoftext|>.", f"The sequence {one}{other} is not mine. {prose(rng, 2)}", "Documents are split at `<|endoftext|>`.",
         "<|endoftext|> separates documents.", "Use <|endoftext|> between two texts, never within one.", f"{one}\n{prose(rng)}\n{other}")
    )  # fmt: skip
    return Case(
        user=rng.choice(
            (
                "How do other models mark turns?",
                "How did GPT-2 separate documents?",
                "Which prompt format has Llama?",
                "What is the EOS token of GPT-2?",
            )
        ),
        content=content,
        reasoning=thought_of(rng),
    )


def call(rng: random.Random, number: int) -> Case:
    text = explained(rng)
    value = rng.choice(
        (
            {"path": "harmony.md", "text": text},
            {"text": rng.choice(MARKERS)},
            {"code": f'MARKER = "{rng.choice(MARKERS)}"'},
            {"html": text.replace("<", "&lt;").replace(">", "&gt;")},
        )
    )
    user = rng.choice(
        (
            "Save a page about the Harmony response format.",
            "Write a file that lists the special tokens.",
            f"Save this: {rng.choice(MARKERS)} and what it is in the chat template",
        )
    )
    return Case(
        user=user,
        calls=(Call(name="write_file", arguments=json.dumps(value)),),
        reasoning=thought_of(rng) or "Write it.",
    )
