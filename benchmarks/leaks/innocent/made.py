"""Innocent answers unrelated to the format."""

from __future__ import annotations

import json
import random

from innocent import sources
from innocent.case import Call, Case
from innocent.words import LANGUAGES, NAMES, NOUNS, THOUGHTS, TOPICS, VERBS


def thought_of(rng: random.Random) -> str:
    return (
        ""
        if rng.random() < 0.15
        else " ".join(rng.sample(THOUGHTS, rng.randint(1, 3))).replace("{topic}", rng.choice(TOPICS))
    )


def sentence(rng: random.Random) -> str:
    topic, name = rng.choice(TOPICS), rng.choice(NAMES)
    return rng.choice(
        (
            f"{name} says that {topic} {rng.choice(VERBS)} {rng.choice(NOUNS)}.",
            f"A closer analysis of {topic} {rng.choice(VERBS)} {rng.choice(NOUNS)}.",
            f"In the final version, {topic} {rng.choice(VERBS)} {rng.choice(NOUNS)}; see the commentary by {name}.",
            f"The assistant coach, {name}, gave a final talk on {topic}.",
            f"Is {topic} final? {name}'s assistant finally said so.",
            f"{topic.capitalize()} {rng.choice(VERBS)} {rng.choice(NOUNS)} (analysis by {name}).",
        )
    )


def prose(rng: random.Random, most: int = 5) -> str:
    return " ".join(sentence(rng) for _ in range(rng.randint(1, most)))


def fenced(rng: random.Random, code: str, language: str = "python") -> str:
    return rng.choice(
        (f"```{language}\n{code}\n```", f"Here it is:\n\n```{language}\n{code}\n```\n\n{sentence(rng)}", code)
    )


def docstring(rng: random.Random, number: int) -> Case:
    texts = sources.docstrings()
    name, text = texts[(number * 7) % len(texts)]
    user = rng.choice(
        (
            f"What does {name} do?",
            f"Explain `{name}`.",
            f"Show me the documentation of {name}",
            "Continue the documentation.",
        )
    )
    return Case(
        user=user,
        content=rng.choice((text, f"**{name}**\n\n{text}", f"{text}\n\n{sentence(rng)}")),
        reasoning=thought_of(rng),
    )


def library_code(rng: random.Random, number: int) -> Case:
    texts = sources.functions()
    name, code = texts[(number * 11) % len(texts)]
    return Case(user=f"Show me the code of {name}.", content=fenced(rng, code), reasoning=thought_of(rng))


def licence(rng: random.Random, number: int) -> Case:
    texts = sources.licences()
    _package, text = texts[(number * 3) % len(texts)]
    return Case(user="Which licence terms apply here?", content=text, reasoning=thought_of(rng))


def package_page(rng: random.Random, number: int) -> Case:
    texts = sources.descriptions()
    name, text = texts[(number * 5) % len(texts)]
    return Case(user=f"Tell me about the package {name}.", content=text, reasoning=thought_of(rng))


def word_first(rng: random.Random, number: int) -> Case:
    word = rng.choice(("analysis", "commentary", "final", "Analysis", "Commentary", "Final", "ANALYSIS", "FINAL"))
    rest = rng.choice(
        (f" of {rng.choice(TOPICS)}: {prose(rng)}", f": {prose(rng)}", f"\n\n{prose(rng)}", f"\n{'=' * 8}\n{prose(rng)}", f" - {prose(rng)}",
         f" answer: {rng.randint(1, 99)}", f" score {rng.randint(0, 9)}-{rng.randint(0, 9)}. {prose(rng)}", f", then: {prose(rng)}", f"/{prose(rng)}",
         f" to={rng.choice(NAMES)} was a typo. {prose(rng)}", f"_{rng.randint(1, 9)}.csv holds it.", f".py: {prose(rng)}", f"'s end. {prose(rng)}",
         f"? {prose(rng)}", f"… {prose(rng)}", f" ({rng.choice(NAMES)}): {prose(rng)}", f"|{prose(rng)}", f" paralysis. {prose(rng)}")
    )  # fmt: skip
    return Case(user=f"Write about {rng.choice(TOPICS)}.", content=word + rest, reasoning=thought_of(rng))


def word_last(rng: random.Random, number: int) -> Case:
    end = rng.choice(
        ("That is the assistant's final", "Ask the assistant: final or commentary?", "It is called assistant commentary", "the assistant, final",
         "order: system, developer, user, assistant, analysis, commentary, final", "assistant/final", "assistant-final", "assistant final analysis",
         "assistant → final", "(assistant)(final)", "assistant:final", "Assistant Final.", "the word is “assistantfinal”", "assistants finalise")
    )  # fmt: skip
    return Case(user="And then?", content=f"{prose(rng)} {end}", reasoning=thought_of(rng))


def identifiers(rng: random.Random, number: int) -> Case:
    a, b = rng.choice(NAMES).split()[0].lower(), rng.randint(1, 99)
    code = rng.choice(
        (f"assistant_final = {b}\nanalysisResult = run(assistant_final)", f"finalAnswer = {b};\nconsole.log(finalAnswer);",
         f"analysisResult.{a}({b})\nfinalScore += 1", "commentaryTrack.play()\nassistantFinal(analysisData)", f'final int x = {b};\nfinal String NAME = "{a}";',
         "finalMap<String, Integer> m = new finalMap<>();", f"analysisOf{a.capitalize()} <- function(x) x + {b}", f'class AssistantFinal(AnalysisBase):\n    commentary = "{a}"',
         f"assistantFinal: analysisFinal => assistantAnalysis + {b}", f"analysis = {{'final': {b}}}\nassistant = analysis['final']",
         f"SELECT analysis, final FROM assistant WHERE commentary = '{a}';", f'<Assistant final={{{b}}} analysis="{a}" />', f"#define ASSISTANTFINAL {b}",
         f"assistantfinal_{b} = 1\nassistantanalysis_{a} = 2", f"{a}.assistantcommentary = {b}", f"finalize(assistantfinal={b})", f"analysisArray[{b}]",
         f"let finalCount = {b}", f"assistantcode{b} = True", f"func finalValue() -> Int {{ return {b} }}", f"final_{a}({b})", f"commentaryId={b}&finalId={a}",
         "type FinalAnalysis = { commentary: string }", f"$finalPrice = {b}; // assistant final", f"Final[int] = {b}", "assistantJson{}", f"final[{b}] = x")
    )  # fmt: skip
    content = rng.choice(
        (
            code,
            code,
            f"```\n{code}\n```",
            f"Use this:\n\n{code}\n\n{sentence(rng)}",
            f"`{code.splitlines()[0]}` does it.",
        )
    )
    return Case(user="Write that code.", content=content, reasoning=thought_of(rng))


def glued_log(rng: random.Random, number: int) -> Case:
    words = (
        "assistant",
        "final",
        "analysis",
        "commentary",
        "user",
        "system",
        "ok",
        "error",
        "state",
        rng.choice(NAMES).lower(),
        "Status",
        "OK",
    )
    glue = rng.choice(("", "", "_", "-", ".", "|", ";", "\t"))

    def line() -> str:
        stamp = f"2026-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}T{rng.randint(0, 23):02}:{rng.randint(0, 59):02}"
        joined = glue.join(rng.choice(words) for _ in range(rng.randint(2, 5)))
        return rng.choice(
            (
                f"{stamp} {joined} {rng.randint(0, 999)}",
                f"{stamp},{joined},{rng.randint(0, 9)}",
                f"[{joined}] {stamp}",
                f"role={joined} {stamp}",
                f"/{joined}/{rng.randint(1, 9)}",
            )
        )

    log = "\n".join(line() for _ in range(rng.randint(2, 8)))
    return Case(
        user="Show me the log.",
        content=rng.choice((log, f"```\n{log}\n```", f"The log:\n{log}\n{sentence(rng)}")),
        reasoning=thought_of(rng),
    )


def glued_prose(rng: random.Random, number: int) -> Case:
    text = prose(rng, 3)
    lost = (
        "".join(text.split())
        if rng.random() < 0.4
        else "".join(letter for letter in text if letter != " " or rng.random() < 0.6)
    )
    return Case(user="Read this scan to me as it is.", content=lost, reasoning=thought_of(rng))


def chat_log(rng: random.Random, number: int) -> Case:
    style = rng.choice(
        (
            "{role}: {text}",
            "{role}:\n{text}",
            "**{role}**: {text}",
            "[{role}] {text}",
            "{role} — {text}",
            "<{role}> {text}",
            "{role}\n{text}",
            '{{"role": "{role}", "content": "{text}"}}',
        )
    )
    roles = rng.choice(
        (
            ("user", "assistant"),
            ("User", "Assistant"),
            ("Human", "AI"),
            ("system", "user", "assistant"),
            ("Q", "A"),
            tuple(rng.sample(NAMES, 2)),
            ("assistant", "analysis", "final"),
        )
    )
    lines = [style.format(role=roles[place % len(roles)], text=sentence(rng)) for place in range(rng.randint(2, 7))]
    return Case(user="Write a conversation.", content="\n".join(lines), reasoning=thought_of(rng))


def language(rng: random.Random, number: int) -> Case:
    texts = [
        text.replace("{topic}", rng.choice(TOPICS))
        for text in rng.sample(sorted(LANGUAGES.values()), rng.randint(1, 3))
    ]
    return Case(
        user="Translate it.",
        content=rng.choice(("\n", " ", "\n\n")).join(texts),
        reasoning=rng.choice((thought_of(rng), texts[0])),
    )


def markdown(rng: random.Random, number: int) -> Case:
    parts = (
        f"## Analysis\n\n{prose(rng)}", f"**Final answer:** {rng.randint(1, 999)}", f"### Commentary\n- {sentence(rng)}\n- {sentence(rng)}",
        f"| analysis | commentary | final |\n| --- | --- | --- |\n| {rng.randint(1, 9)} | {rng.choice(NOUNS)} | yes |", f"> {sentence(rng)}\n>\n> — final",
        f"1. analysis\n2. commentary\n3. final\n4. {sentence(rng)}", f"*analysis*{rng.choice(NAMES)}", "---", f"[final](https://example.org/assistant/final?q={rng.randint(1, 9)})",
        f"# analysis**{rng.choice(NAMES)}**", f"__final__{sentence(rng)}", f"Final Analysis\n==============\n{prose(rng)}",
    )  # fmt: skip
    return Case(
        user="Write a report.", content="\n\n".join(rng.sample(parts, rng.randint(1, 5))), reasoning=thought_of(rng)
    )


def json_answer(rng: random.Random, number: int) -> Case:
    values = [
        rng.choice(NOUNS),
        sentence(rng),
        rng.randint(0, 99),
        None,
        True,
        {"role": "assistant", "channel": "final"},
        ["analysis", "final"],
    ]
    keys = rng.sample(
        (
            "analysis",
            "final",
            "commentary",
            "assistant",
            "role",
            "channel",
            "message",
            "start",
            "end",
            "return",
            "finalAnswer",
            "content",
        ),
        4,
    )
    value = {key: rng.choice(values) for key in keys}
    text = rng.choice(
        (
            json.dumps(value),
            json.dumps(value, indent=2),
            json.dumps(value, separators=(",", ":")),
            json.dumps([value, value]),
        )
    )
    return Case(
        user="Answer as JSON.",
        content=rng.choice((text, text, f"```json\n{text}\n```", f"final {text}")),
        reasoning=thought_of(rng),
    )


def markup(rng: random.Random, number: int) -> Case:
    inner = sentence(rng)
    name = rng.choice(("analysis", "reasoning", "thought", "final", "answer", "commentary", "think"))
    user = rng.choice(
        (
            "Show me how another model would answer.",
            "Write it as XML.",
            f"Wrap the text in <{name}> tags.",
            "Give me the HTML.",
            f"Which element holds the {name}? Show the markup.",
        )
    )
    content = rng.choice(
        (f"<{name}>{inner}</{name}>", f"<{name}>\n{inner}\n</{name}>\n<answer>{rng.randint(1, 9)}</answer>", f"<p>{inner}</p>", f"<root><{name}>{inner}</{name}></root>",
         f"&lt;{name}&gt;{inner}&lt;/{name}&gt;", f"&lt;div class=&quot;final&quot;&gt;{inner}&lt;/div&gt;", f"```xml\n<{name}>{inner}</{name}>\n```", f"&lt;| {inner} |&gt;",
         f"\\u003cdiv\\u003e{inner}\\u003c/div\\u003e", f"<!-- {name} --> {inner}")
    )  # fmt: skip
    return Case(user=user, content=content, reasoning=thought_of(rng))


def thought(rng: random.Random, number: int) -> Case:
    answer = prose(rng, 3)
    reasoning, content = rng.choice(
        ((f"We need to answer. Draft: {answer}", answer), (answer, answer), (answer.split(". ")[0] + ".", answer), (f"{answer} Good.", answer), (answer[: len(answer) // 2], answer),
         (f"The user asks. I could say: {answer} That is final.", f"{answer} {sentence(rng)}"), (f"Write: analysis: {answer} final: yes", f"analysis: {answer}"),
         ("Simple. The answer: " + answer, "The answer: " + answer), (f"I will write to=functions.search? No, answer: {answer}", answer), ("The user wants 4.", "4"),
         (f"In the final answer, the assistant commentary... {answer}", answer), (f"Let me think. assistant final is a name. {answer}", answer))
    )  # fmt: skip
    return Case(user=f"What about {rng.choice(TOPICS)}?", content=content, reasoning=reasoning)


def call(rng: random.Random, number: int) -> Case:
    source = sources.functions()
    value = rng.choice(
        ({"code": source[number % len(source)][1]}, {"query": sentence(rng)}, {"html": f"<div>{sentence(rng)}</div>"}, {"analysis": sentence(rng), "final": True}, {},
         {"text": f"\u003canalysis\u003e{sentence(rng)}"}, {"sql": "SELECT final FROM analysis"}, {"city": rng.choice(NAMES)}, {"pattern": r"<\|.*\|>"}, {"path": "/assistant/final.json"})
    )  # fmt: skip
    arguments = json.dumps(value, ensure_ascii=rng.random() < 0.5)
    arguments = arguments.replace("<", "\\u003c").replace(">", "\\u003e") if rng.random() < 0.3 else arguments
    name = rng.choice(
        (
            "search",
            "run_code",
            "final_answer",
            "analysis",
            "commentary_track",
            "assistant.final",
            "save-file",
            "analysisTool",
            "json",
        )
    )
    calls = (Call(name=name, arguments=arguments),) * rng.choice((1, 1, 1, 2))
    content = rng.choice(("", "", sentence(rng), "I will look it up.", "analysis first:"))
    return Case(user="Do it with a tool.", content=content, calls=calls, reasoning=thought_of(rng) or "Call it.")


def call_in_words(rng: random.Random, number: int) -> Case:
    """Return an answer about functions. The request declares one of them."""
    name = rng.choice(("search", "getWeather", "save_file", "https.onCall"))
    arguments = json.dumps({"query": rng.choice(TOPICS)})
    call = f"functions.{name}({arguments})"
    user, content = rng.choice(
        ((f"Which tools do you have for {rng.choice(TOPICS)}?", f"I have `functions.{name}`. {sentence(rng)}"), ("How did you find that out?", f"I called functions.{name} with {arguments}. {sentence(rng)}"),
         ("Write the TypeScript client.", fenced(rng, f"const result = await {call};", "ts")), ("Write the Firebase module.", fenced(rng, f"exports.run = functions.https.onCall({arguments});", "js")),
         ("Show me an example of a call.", call), ("How do I call the tool from the shell?", f"Run it:\n\n    curl -d '{arguments}' example.org to={name}\n\n{sentence(rng)}"),
         ("What does a tool call look like?", f"to=functions.{name} json{arguments}"), ("List the tools.", f"- functions.{name}: {sentence(rng)}\n- functions.other: {sentence(rng)}"),
         ("Write the log line.", f"to={name} {arguments}"), ("Draft the e-mail header.", f"from=me to={name}\n{arguments}"), ("Put the plan into JSON.", json.dumps({"tool_uses": [{"name": name, "why": sentence(rng)}]})),
         ("Should we use the tool?", f"We need to call {name} only if the answer is unknown. {sentence(rng)}"), ("Document the API.", f"### functions.{name}\n\n{sentence(rng)}\n\n{arguments}"))
    )  # fmt: skip
    return Case(user=user, content=content, reasoning=thought_of(rng), tools=(name, "other"))


def first_person(rng: random.Random, number: int) -> Case:
    """Return an answer in the first person, or about users, as thoughts are."""
    topic = rng.choice(TOPICS)
    user, content = rng.choice(
        ((f"Why do teams care about {topic}?", f"We need to give {topic} time, because {rng.choice(NAMES)} depends on it. {prose(rng)}"), ("Write a user story.", f"The user wants {topic}. The system must provide it. {prose(rng, 2)}"),
         ("Draft the team's statement.", f"We should answer for {topic}. We must explain what happened. {prose(rng, 2)}"), (f"Summarise the ticket on {topic}.", f"The user says {topic} fails. The user asked twice. {prose(rng, 2)}"),
         ("What should I do?", f"I would wait. Let's say {topic} works: then we should say so. {prose(rng, 2)}"), ("Write the opening of the talk.", f"Let's call it {topic}. We need to find out why. {prose(rng, 2)}"),
         ("Continue: We need to", f"We need to answer one question about {topic}. {prose(rng, 2)}"), ("Give me a checklist.", f"Must provide: {topic}. Should provide: {rng.choice(TOPICS)}. {sentence(rng)}"))
    )  # fmt: skip
    return Case(user=user, content=content, reasoning=rng.choice(("", "", thought_of(rng))))


def long_thought(rng: random.Random, number: int) -> Case:
    """Return a thought that the limit cut while it counts, compares or lists."""
    topic, count = rng.choice(TOPICS), rng.randint(12, 40)
    reasoning = rng.choice(
        ("\n".join(f"Case {n}: {topic} gives {n * n}." for n in range(count)), " ".join(f"Is {n} prime? Check." for n in range(count)), "| a | b |\n" * count, f"{prose(rng)} " * 4,
         " ".join(f"Candidate {n}: {sentence(rng)} Hmm." for n in range(count)), "No. " * count, "\n".join(["for row in table:", "    print(row)"] * 6 + [prose(rng)]))
    )  # fmt: skip
    return Case(user=f"Work out {topic}.", content="", reasoning=reasoning, finish="length")


def bars(rng: random.Random, number: int) -> Case:
    text = rng.choice(
        ("⟨ψ|φ⟩ = <ψ|φ>", "x |> f <| y", "let g = f <| h <| 3", "cat a.txt | sort |uniq >out", "P(A|B) <|> Q", "<|x|> is the mean of |x|", "a <| b |> c", "if (a<|b|>c)",
         "parser <|> other", "<|>", "<||>", "|<end>|", "< | end | >", "<|End|>", "<|channel>", "<channel|>", "<| channel |>", "the norm ||x|| < |y|", "$\\langle a | b \\rangle$", "{-# <| #-}")
    )  # fmt: skip
    return Case(
        user="Write the formula.",
        content=rng.choice((text, f"{prose(rng, 2)} {text} {prose(rng, 2)}", f"{text}\n{text}")),
        reasoning=thought_of(rng),
    )


def short(rng: random.Random, number: int) -> Case:
    words = ("Yes.", "no", "4", "final", "analysis", "commentary", "assistant", "Final", "Analysis", "user", "OK", "42.", "🙂", "Paris", "assistant final", "finally", "final.", "json", "code",
             "Commentary", "end", "return", "start", "{}", "null", "analysis!", "final?", '"final"', "final: 4", "(final)", "finals", "Hello!", "assistants")  # fmt: skip
    return Case(user="In one word, please.", content=rng.choice(words), reasoning=thought_of(rng))


def repetition(rng: random.Random, number: int) -> Case:
    piece = sentence(rng)
    user, content, finish = rng.choice(
        (("Write a refrain, twice.", f"{piece}\n{piece}", "stop"), ("Write a song.", f"{piece}\n" * 3 + prose(rng), "stop"), ("Draw a table.", "| a | b |\n" * 30, "length"), ("Draw a line.", "-" * 300, "length"),
         ("Count.", ", ".join(map(str, range(rng.randint(40, 300)))), "length"), (f"Repeat after me: {piece}", f"{piece} {piece}", "stop"), ("Write ha.", "ha " * 100, "length"),
         ("List zeros.", "0, " * 200, "length"), ("Compare both.", f"A: {piece}\nB: {piece}", "stop"), ("Say hello.", "Hello! Hello!", "stop"), ("Indent it.", f"{piece}\n    {piece}\nEnd.", "stop"))
    )  # fmt: skip
    return Case(user=user, content=content, reasoning=thought_of(rng), finish=finish)


def odd(rng: random.Random, number: int) -> Case:
    text = rng.choice(
        (
            "👩🏽‍🚀🫠",
            "שלום עולם",
            "مرحبا بالعالم",
            "e\u0301\u0323",
            "A \ufffd B",
            "\u200b\u200e",
            "tab\tand\vform\f",
            "𠮷野家",
            "🇪🇺🏳️‍🌈",
            "\u2028\u2029",
            "ﬁnal analysıs",
            "ａｎａｌｙｓｉｓ",
            "＜｜end｜＞",
            "<\u200b|end|>",
        )
    )
    return Case(
        user="Write odd characters.",
        content=f"{rng.choice(('', sentence(rng) + ' '))}{text}{rng.choice(('', ' ' + sentence(rng)))}",
        reasoning=thought_of(rng),
    )
