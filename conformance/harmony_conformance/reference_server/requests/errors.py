"""Errors in the form of the OpenAI API: {"error": {"message", "type", "param", "code"}}."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from harmony_conformance.json_value import JsonObject

_TYPES = {HTTPStatus.NOT_FOUND: "not_found_error", HTTPStatus.INTERNAL_SERVER_ERROR: "internal_server_error"}


class ApiError(Exception):
    """A failed request, with the status and the members of the error body."""

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
        """JSON body of the response."""
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
    """Response without streaming: HTTP status, JSON body, and headers specific to the API."""

    status: int
    body: JsonObject
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


def wrong_value(param: str, problem: str) -> ApiError:
    """Return the error for an invalid value of a parameter."""
    return ApiError(f"Invalid value for '{param}': {problem}", param=param, code="invalid_value")


def unsupported(param: str, problem: str) -> ApiError:
    """Return the error for a parameter that this server does not support."""
    return ApiError(f"Unsupported parameter '{param}': {problem}", param=param, code="unsupported_parameter")


def server_failure(message: str) -> ApiError:
    """Return an error with status 500."""
    return ApiError(message, status=HTTPStatus.INTERNAL_SERVER_ERROR)
