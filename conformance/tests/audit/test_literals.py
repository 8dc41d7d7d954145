"""The search for literals passes over no record with a needle: each needle implies literals, proven by automata."""

import functools
import itertools
import re
from re import _constants as code
from re import _parser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harmony_conformance.audit.plans import literal_search
from harmony_conformance.audit.plans.literal_search import SETS, lines_with_literals
from harmony_conformance.audit.plans.literals import FOLLOWERS, INNOCENT, RULES, SURE
from harmony_conformance.audit.plans.needles import _ROLES_ASIDE, NEEDLES, TOGETHER

ANY = frozenset(range(256))


class Machine:
    """A nondeterministic automaton of a pattern: `steps[state]` are the bytes and the next state, `empty[state]` the states without a byte."""

    def __init__(self, pattern):
        self.steps, self.empty = [], []
        self.begin = self.state()
        self.end = self.add(_parser.parse(pattern.encode()), self.begin)

    def state(self):
        self.steps.append([])
        self.empty.append([])
        return len(self.steps) - 1

    def byte(self, allowed, begin):
        end = self.state()
        self.steps[begin].append((allowed, end))
        return end

    def add(self, items, begin):
        for kind, value in items:
            begin = self.one(kind, value, begin)
        return begin

    def one(self, kind, value, begin):
        if kind is code.LITERAL:
            return self.byte(frozenset({value}), begin)
        if kind is code.NOT_LITERAL:
            return self.byte(ANY - {value}, begin)
        if kind is code.IN:
            return self.byte(members(value), begin)
        if kind is code.SUBPATTERN:
            return self.add(value[3], begin)
        if kind is code.BRANCH:
            end = self.state()
            for branch in value[1]:
                self.empty[self.add(branch, begin)].append(end)
            return end
        assert kind is code.MAX_REPEAT, kind
        least, most, item = value
        for _ in range(least):
            begin = self.add(item, begin)
        end = self.state()
        self.empty[begin].append(end)
        if most is code.MAXREPEAT:
            self.empty[self.add(item, end)].append(end)
        else:
            for _ in range(most - least):
                begin = self.add(item, begin)
                self.empty[begin].append(end)
        return end


def members(items):
    found = set()
    for kind, value in items:
        if kind is code.LITERAL:
            found.add(value)
        elif kind is code.RANGE:
            found.update(range(value[0], value[1] + 1))
        else:
            assert kind is code.NEGATE, kind
    return ANY - found if items[0][0] is code.NEGATE else frozenset(found)


def implies(pattern, words):
    """Return True if each match of the pattern has one of the words, whatever surrounds it: no path to its end avoids them."""
    machine = Machine(pattern)
    texts = [word.encode("latin-1") for word in words]
    heads = {text[:size] for text in texts for size in range(len(text))}
    letters = frozenset(itertools.chain.from_iterable(texts))

    def behind(head, letter):
        """Return the longest end of the text that begins a word, or None if it has one."""
        text = head + bytes([letter])
        if any(text.endswith(word) for word in texts):
            return None
        return next(text[cut:] for cut in range(len(text) + 1) if text[cut:] in heads)

    known = {}
    todo = [(machine.begin, b"")]
    seen = set(todo)
    while todo:
        state, head = todo.pop()
        if state == machine.end:
            return False
        following = [(other, head) for other in machine.empty[state]]
        for allowed, other in machine.steps[state]:
            for letter in allowed & letters:
                if (head, letter) not in known:
                    known[head, letter] = behind(head, letter)
                if known[head, letter] is not None:
                    following.append((other, known[head, letter]))
            if allowed - letters:
                following.append((other, b""))
        for one in following:
            if one not in seen:
                seen.add(one)
                todo.append(one)
    return True


def role_with(followers):
    return [f"assistant{follower}" for follower in followers]


FOUND_AS_SURE = (*SURE, *role_with(FOLLOWERS))
AT_THE_END = ("assistant\\",)
"""What follows makes this a trigger, or a sure literal."""
ROLE_TRIGGERS = ('assistant"', 'assistant\\"')


def test_a_needle_implies_literals_that_are_found():
    """Only `assistant` at the end of a string may be part of an innocent text: the next test."""
    unproven = [row for row in (*((needle,) for needle in NEEDLES), *TOGETHER) if not is_found(row)]
    assert not unproven


def is_found(row):
    """Return True if a row implies a sure literal, or the trigger of a rule and each set of an alternative. A sure literal also counts for a set."""

    def implied(words):
        return any(implies_any(pattern, words) for pattern in row)

    return implied(()) or any(
        implied(rule.trigger + AT_THE_END * (rule.trigger == ROLE_TRIGGERS))
        and any(all(map(implied, alternative)) for alternative in rule.alternatives)
        for rule in RULES
    )


@functools.cache
def implies_any(pattern, words):
    return implies(pattern, (*words, *FOUND_AS_SURE))


def test_the_role_of_a_message_is_no_end_of_a_piece():
    assert not [(pattern, text) for pattern in _ROLES_ASIDE for text in INNOCENT if re.search(pattern, text)]


def test_no_literal_hides_another_one():
    """A sure literal may: its line is searched. So may a quote that ends a string, and `assistant` is what innocent texts are about."""
    hidden = [
        (one, other)
        for literals_of_set in SETS
        for one, other in itertools.permutations(literals_of_set, 2)
        if one not in SURE
        and (
            (other in one and not other.startswith("assistant"))
            or any(one.endswith(other[:size]) for size in range(1, len(other)) if other[:size] not in {'"', one})
        )
    ]
    assert not hidden


def test_the_end_of_a_role_hides_no_follower():
    """`assistant` is not found where a longer literal is. No follower is sure there."""
    longer = [word for words in SETS for word in words if word.startswith("assistant") and word != "assistant"]
    assert {*ROLE_TRIGGERS} < {*longer}
    assert not [
        (word, follower)
        for word in longer
        for follower in role_with(FOLLOWERS)
        if word.startswith(follower) or follower.startswith(word)
    ]


def test_no_trigger_is_sure():
    triggers = [word for rule in RULES for word in rule.trigger]
    assert not {*triggers} & {*SURE, *INNOCENT}
    assert len(triggers) == len({*triggers})


def test_a_line_with_an_alternative_has_a_first_literal():
    for rule, firsts in zip(RULES, literal_search.FIRST_SETS, strict=True):
        assert not [word for alternative in rule.alternatives for word in alternative[0] if not word.startswith(firsts)]
        assert len(firsts) + len(literal_search.OTHER_LETTERS) <= literal_search.MOST_LITERALS


@pytest.fixture
def library():
    return pytest.importorskip("ahocorasick_rs")


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_a_line_with_a_needle_is_found(data):
    pytest.importorskip("ahocorasick_rs")
    row = data.draw(st.sampled_from([*((needle,) for needle in NEEDLES), *TOGETHER]))
    pieces = [data.draw(st.from_regex(pattern.encode(), fullmatch=True)) for pattern in row]
    before = data.draw(st.sampled_from((b"", *(text.encode() + b"}" for text in INNOCENT))))
    line = before + b" ".join(pieces).replace(b"\n", b" ") + b" "
    block = b'{"role": "assistant"}\n' + line + b"\n{}"
    begin = block.index(b"\n") + 1
    assert list(lines_with_literals(block)) == [(begin, begin + len(line))]


def test_lines_are_found_in_each_part_of_a_block(library, monkeypatch):
    monkeypatch.setattr(literal_search, "_PART_BYTES", 40)
    lines = [b"x" * 90, b"<|", b"", b"y" * 30, b"a <| b" + b"z" * 50, b'"=', b'"= "analysis', b"<|<|"]
    block = b"\n".join(lines)
    found = [block[begin:end] for begin, end in lines_with_literals(block)]
    assert found == [lines[1], lines[4], lines[6], lines[7]]
