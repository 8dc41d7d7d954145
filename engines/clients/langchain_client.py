"""An agent of LangChain with one tool: `langchain_client.py URL MODEL PROMPT`."""

import sys

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def get_weather(city: str) -> str:
    """Current weather of a city."""
    return f"It is sunny in {city}."


url, model, prompt = sys.argv[1:]
agent = create_agent(
    ChatOpenAI(model=model, base_url=url, streaming=True),
    tools=[get_weather],
    system_prompt="Answer in one sentence.",
)
print(agent.invoke({"messages": [{"role": "user", "content": prompt}]})["messages"][-1].content)
