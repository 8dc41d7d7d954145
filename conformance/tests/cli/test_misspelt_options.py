"""Every option of every command and subcommand, misspelt: the error has the one that was perhaps meant."""

import argparse

import pytest

from harmony_conformance.cli.main import build_parser, main


def parsers(parser, *words):
    """Yield the words that call each command and subcommand, with its parser."""
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if words:
        yield words, parser
    for action in nested:
        for name, own in action.choices.items():
            yield from parsers(own, *words, name)


def misspelt(option, known):
    """The option with two letters exchanged, so that it is no beginning of another one."""
    swapped = (f"{option[:at]}{option[at + 1]}{option[at]}{option[at + 2 :]}" for at in range(2, len(option) - 1))
    return next((word for word in swapped if not any(one.startswith(word) for one in known)), "")


MISSPELT = [
    pytest.param(words, misspelt(option, known), option, id=f"{' '.join(words)} {option}")
    for words, parser in parsers(build_parser(None))
    for known in [sorted(option for option in parser._option_string_actions if option.startswith("--"))]
    for option in known
    if misspelt(option, known)
]


@pytest.mark.parametrize("value", [(), ("x",)], ids=["alone", "with a value"])
@pytest.mark.parametrize(("words", "word", "option"), MISSPELT)
def test_a_misspelt_option_is_refused_with_the_one_that_was_perhaps_meant(words, word, option, value, capsys):
    with pytest.raises(SystemExit) as refused:
        main([*words, word, *value])
    err = capsys.readouterr().err
    assert (refused.value.code, err.count("\n")) == (2, 1)
    assert err.startswith(f"harmony-conformance {' '.join(words)}: ")
    assert f"did you mean {option}? (see harmony-conformance {' '.join(words)} --help)" in err


def test_every_command_has_an_option_to_misspell():
    assert len({param.values[0] for param in MISSPELT}) == len([*parsers(build_parser(None))])
