"""What text-generation 0.7.0, the older official client of TGI, makes of a server: run by the interpreter that has it.

It wants huggingface_hub before 1.0, which the environment cannot have. Prints one JSON object.
"""

import asyncio
import json
import sys

PROMPT = "<|start|>user<|message|>Hi<|end|><|start|>assistant"


def answers(url):
    from text_generation import AsyncClient, Client
    from text_generation.errors import ValidationError
    from text_generation.types import Message, Tool

    client = Client(url, timeout=30)
    asked = [Message(role="user", content="Hi")]
    tool = Tool(type="function", function={"name": "f", "parameters": {"type": "object", "properties": {}}})
    whole = client.generate(PROMPT, max_new_tokens=64, decoder_input_details=True)
    parts = list(client.generate_stream(PROMPT, max_new_tokens=64))
    try:
        client.generate("x", stop_sequences=list("abcde"))
        refusal = ""
    except ValidationError as problem:
        refusal = str(problem)
    return {
        "text": whole.generated_text,
        "prefill": [token.id for token in whole.details.prefill],
        "finish": whole.details.finish_reason.value,
        "streamed": "".join(part.token.text for part in parts if not part.token.special),
        "at_the_end": parts[-1].generated_text,
        "refusal": refusal,
        "chat": client.chat(asked, max_tokens=64).choices[0].message.content,
        "called": client.chat(asked, tools=[tool], tool_choice="required")
        .choices[0]
        .message.tool_calls[0]["function"]["name"],
        "async": asyncio.run(AsyncClient(url, timeout=30).generate(PROMPT, max_new_tokens=64)).generated_text,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(answers(sys.argv[1])))
