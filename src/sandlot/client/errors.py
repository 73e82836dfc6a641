"""What a client's calls raise: the platform's own words, and the status they came with."""

from __future__ import annotations

import json

import httpx


class ClientError(Exception):
    """The platform said no. `code` is the HTTP status; 0 if it did not answer at all."""

    def __init__(self, code: int, message: str, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.code, self.retry_after_s = code, retry_after_s


class Unauthorized(ClientError):
    """The key is missing or not valid."""


class NotFound(ClientError):
    """There is no such sandbox or file of yours."""


class Busy(ClientError):
    """A limit is reached; try again after `retry_after_s`."""


class Unavailable(ClientError):
    """The platform or its provider does not answer; try again after `retry_after_s`."""


_KINDS = {401: Unauthorized, 404: NotFound, 429: Busy, 503: Unavailable}


def error_of(answer: httpx.Response, body: bytes) -> ClientError:
    try:
        message = str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        message = f"the platform answered {answer.status_code}"
    after = answer.headers.get("retry-after", "")
    kind = _KINDS.get(answer.status_code, ClientError)
    return kind(answer.status_code, message, int(after) if after.isdecimal() else None)
