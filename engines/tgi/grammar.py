"""The grammar of a request, a regular expression: which texts it admits, and the shortest way from the beginning of one to its end."""

from collections import deque
from collections.abc import Iterable
from functools import lru_cache

from interegular import parse_pattern
from interegular.fsm import anything_else

_LIKED = '"}]{[:, 0123456789abcdefghijklmnopqrstuvwxyz'
"""Characters to write where a grammar leaves the choice, best first."""


class Grammar:
    """The automaton of a regular expression, as TGI's own shard compiles it."""

    def __init__(self, pattern: str) -> None:
        self._machine = parse_pattern(pattern).to_fsm()
        self._left = self._distances()

    def complete(self, text: str) -> tuple[str, int]:
        """Return the longest beginning of a text that the grammar admits, with the shortest end, and the length of the beginning."""
        state, length = self._machine.initial, 0
        for character in text:
            following = self._machine.map.get(state, {}).get(self._machine.alphabet[character])
            if following not in self._left:
                break
            state, length = following, length + 1
        return text[:length] + self._shortest_end(state), length

    def _shortest_end(self, state: int) -> str:
        end = ""
        while self._left[state]:
            moves = self._machine.map[state].items()
            _, _, key, state = min((self._left[to], self._rank(key), key, to) for key, to in moves if to in self._left)
            end += self._character(key)
            spaced = self._machine.map[state].get(self._machine.alphabet[" "]) if end[-1] in ",:" else None
            if spaced in self._left:  # as models write JSON
                state, end = spaced, end + " "
        return end

    def _character(self, key: int) -> str:
        characters = [one for one in self._machine.alphabet.by_transition[key] if one is not anything_else]
        return min(characters, key=_rank) if characters else "x"

    def _rank(self, key: int) -> tuple[int, str]:
        return _rank(self._character(key))

    def _distances(self) -> dict[int, int]:
        """Return the number of characters from each state to the nearest end of a text; states without an end are left out."""
        before: dict[int, list[int]] = {}
        for state, moves in self._machine.map.items():
            for to in moves.values():
                before.setdefault(to, []).append(state)
        left = dict.fromkeys(self._machine.finals, 0)
        waiting = deque(left)
        while waiting:
            state = waiting.popleft()
            for one in before.get(state, ()):
                if one not in left:
                    left[one] = left[state] + 1
                    waiting.append(one)
        return left


def _rank(character: str) -> tuple[int, str]:
    place = _LIKED.find(character)
    return (place if place >= 0 else len(_LIKED)), character


@lru_cache(maxsize=64)
def compile_grammar(pattern: str) -> Grammar:
    """Return the grammar of a pattern."""
    return Grammar(pattern)


def choose_text(pattern: str, wanted: Iterable[str]) -> str:
    """Return the first wanted text that the grammar admits whole, else the one that it admits furthest, brought to an end."""
    grammar = compile_grammar(pattern)
    best, longest = grammar.complete("")
    for text in wanted:
        completed, length = grammar.complete(text)
        if completed == text:
            return text
        if length > longest:
            best, longest = completed, length
    return best
