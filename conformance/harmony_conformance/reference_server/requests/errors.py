"""Refusals and failures, as the API words them.

ApiError            answered with `status` and {"error": {"message", "type", "param", "code"}}
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from harmony_conformance.json_value import JsonObject

_TYPES = {
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.INTERNAL_SERVER_ERROR: "internal_server_error",
}


class ApiError(Exception):
    """A request that is answered with an error; carries what the error body says."""

    def __init__(
        self,
        message: str,
        *,
        status: HTTPStatus = HTTPStatus.BAD_REQUEST,
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.param = param
        self.code = code

    @property
    def body(self) -> JsonObject:
        """The JSON body of the answer."""
        return {
            "error": {
                "message": self.message,
                "type": _TYPES.get(self.status, "invalid_request_error"),
                "param": self.param,
                "code": self.code,
            }
        }


@dataclass(frozen=True, kw_only=True)
class Reply:
    """An answer in one piece: HTTP status and JSON body, and headers that the API has of its own."""

    status: int
    body: JsonObject
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


def wrong_value(param: str, problem: str) -> ApiError:
    """The refusal of one parameter, which the message names."""
    return ApiError(f"Invalid value for '{param}': {problem}", param=param, code="invalid_value")


def unsupported(param: str, problem: str) -> ApiError:
    """The refusal of a parameter that this server declares it does not offer."""
    return ApiError(f"Unsupported parameter '{param}': {problem}", param=param, code="unsupported_parameter")


def server_failure(message: str) -> ApiError:
    """A failure that the server blames on itself."""
    return ApiError(message, status=HTTPStatus.INTERNAL_SERVER_ERROR)
