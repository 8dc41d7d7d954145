"""An agent of the OpenAI Agents SDK with one tool: `openai_agents_client.py URL MODEL PROMPT`."""

import asyncio
import sys

from agents import Agent, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI


@function_tool
def get_weather(city: str) -> str:
    """Current weather of a city."""
    return f"It is sunny in {city}."


async def run_agent(url: str, model: str, prompt: str) -> None:
    """Run the agent and print its answer."""
    set_tracing_disabled(disabled=True)
    agent = Agent(
        name="Weather",
        instructions="Answer in one sentence.",
        tools=[get_weather],
        model=OpenAIResponsesModel(model=model, openai_client=AsyncOpenAI(base_url=url)),
    )
    result = Runner.run_streamed(agent, prompt)
    async for _ in result.stream_events():
        pass
    print(result.final_output)


asyncio.run(run_agent(*sys.argv[1:]))
