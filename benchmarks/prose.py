"""Text for measurements, equal on every machine: mostly English prose, with some code, JSON and other languages."""

import random

SENTENCES = (
    "The train from Utrecht arrives at platform seven and leaves again four minutes later.",
    "If the cache holds an older entry, the newer one replaces it without any further question.",
    "Let me think about this step by step before I commit to an answer.",
    "She asked whether the report could be finished by Thursday, and nobody objected.",
    "A binary search halves the interval at each step, hence the logarithmic number of comparisons.",
    "We need to call the weather function with the city and the unit that the user prefers.",
    "However, the second experiment contradicts the first: 41.7% of the samples were mislabelled.",
    "In 1969 the crew of Apollo 11 spent 21 hours and 36 minutes on the surface of the Moon.",
    "Photosynthesis converts light, water and carbon dioxide into glucose and oxygen.",
    "The user seems to want a short list, not an essay, so three bullet points will do.",
    "- First, read the instructions.\n- Second, measure twice.\n- Third, cut once.",
    "Prices rose by 3.2 percent in the first quarter, mainly because of energy and transport.",
    "The theorem holds for every finite group; the infinite case needs the axiom of choice.",
    "Nobody expected the small bakery on the corner to outlive the supermarket.",
    "Rewriting the loop as a comprehension makes it shorter but not necessarily faster.",
    "You are right that the contract ends in June; what it does not say is who pays for the repairs.",
    "**In short:** keep the receipt, write down the serial number, and call before the end of the month.",
    "The second paragraph repeats the first in other words, which is why I would leave it out.",
    "A good compromise is to store the raw events and to compute the totals when they are asked for.",
    "There are three reasons for this, and the most important one is that water expands when it freezes.",
    "Nothing in the logs suggests that the service was restarted between midnight and six o'clock.",
    "He had been walking for an hour before he noticed that the map was upside down.",
    "```python\ndef area(width: float, height: float) -> float:\n    return width * height\n```",
    '{"city": "Lisbon", "unit": "celsius", "days": 5, "hourly": false}',
    "SELECT name, COUNT(*) FROM orders WHERE created_at > '2024-01-01' GROUP BY name;",
    "| item | count | price |\n| --- | ---: | ---: |\n| apples | 12 | 3.40 |",
    "Un proverbe dit qu'il ne faut pas vendre la peau de l'ours avant de l'avoir tué.",
    "Die Straßenbahn hält heute wegen Bauarbeiten nicht am Königsplatz.",
    "오늘은 날씨가 맑아서 산책하기에 좋은 날입니다.",
    "It is raining, so take an umbrella ☔ and perhaps a second pair of shoes 👟.",
)


def prose(characters: int, *, seed: int) -> str:
    """Return a text of this length. Another seed gives another text."""
    shuffled = random.Random(seed)
    parts: list[str] = []
    length = 0
    while length < characters:
        sentence = shuffled.choice(SENTENCES)
        parts.append(sentence)
        length += len(sentence) + 1
    return " ".join(parts)[:characters]
