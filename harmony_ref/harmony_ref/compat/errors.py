"""The one exception class of openai_harmony."""

from typing import NoReturn

from harmony_ref import errors


class HarmonyError(errors.HarmonyError):
    """Tokens that are not Harmony, or text with a special token that is not allowed.

    Its `__cause__`, if any, is the error of harmony_ref, with position, state and expected tokens.
    """


def raise_disallowed_special_token(token: str) -> NoReturn:
    """Raise the HarmonyError for a text that contains this special token."""
    raise HarmonyError(
        f"Encountered text corresponding to disallowed special token {token!r}.\n"
        "If you want this text to be encoded as a special token, "
        f"pass it to `allowed_special`, e.g. `allowed_special={{'{token}', ...}}`.\n"
        "If you want this text to be encoded as normal text, disable the check for this token "
        f"by passing `disallowed_special=(enc.special_tokens_set - {{'{token}'}})`.\n"
        "To disable this check for all special tokens, pass `disallowed_special=()`.\n"
    )
