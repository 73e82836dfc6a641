"""The OpenAPI description, put to the test: whatever it allows, and much that it does not, gets an answer it names."""

from __future__ import annotations

from typing import Any

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.api.servers import Doors

from sandlot.engine.api.app import build_app
from sandlot.engine.api.deps import Deps

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


# The description depends on the routes alone, not on the services behind them.
DEPS = Deps(
    **dict.fromkeys(("control", "access", "secrets", "templates", "history", "egress", "clock", "metrics")), version="0"
)  # type: ignore[arg-type]
schema = schemathesis.openapi.from_dict(build_app(DEPS).openapi())


@schema.parametrize()
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_no_request_breaks_the_server(case: Any, shared: Doors) -> None:
    response = case.call(base_url=shared.url, headers={"X-API-KEY": shared.key})
    case.validate_response(response, checks=CHECKS)
