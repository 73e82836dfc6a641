"""Signing in to Amazon's registries: the signature by Amazon's own examples, the trade with a stand-in on loopback."""

from __future__ import annotations

import base64
import json
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from e2b import Template
from e2b.exceptions import BuildException
from tests.templates import registry as registries
from tests.templates.conftest import Build, Lines
from tests.templates.registry import image, shell

from sandlot.engine.core.errors import StepFailed
from sandlot.engine.core.model import AmazonLogin
from sandlot.engine.node.images import amazon

pytestmark = pytest.mark.timeout(300)  # builds take as long as the machine is busy

LOGIN = "AWS:password-of-an-hour"
KEY = AmazonLogin(
    access_key_id="AKIDEXAMPLE", secret_access_key="wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", region="us-east-1"
)


@pytest.mark.parametrize(
    ("method", "signature"),
    [
        ("GET", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("POST", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
    ],
)
def test_requests_are_signed_as_in_amazons_examples(method: str, signature: str) -> None:
    headers = {"host": "example.amazonaws.com", "x-amz-date": "20150830T123600Z"}
    said = amazon.authorization(KEY, method, "https://example.amazonaws.com/", headers, b"", "service")
    assert said.endswith(f"SignedHeaders=host;x-amz-date, Signature={signature}")


def test_only_regions_and_registries_of_amazon_are_taken_for_such() -> None:
    assert amazon.address(KEY) == "https://api.ecr.us-east-1.amazonaws.com/"
    assert amazon.is_registry("123456789012.dkr.ecr.us-east-1.amazonaws.com")
    assert not amazon.is_registry("amazonaws.com.example.org")
    for region in ("", "us-east-1.example.org/", "us-east-1#"):
        with pytest.raises(StepFailed, match="is not a region"):
            amazon.address(AmazonLogin(access_key_id="a", secret_access_key="b", region=region))


class _SignIn(BaseHTTPRequestHandler):
    """What Amazon does with a key: it checks the signature, and answers in its own words."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        names = self.headers["Authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
        headers = {name: self.headers[name] for name in names}
        assert {"host", "x-amz-date", "x-amz-target"} <= set(names)
        expected = amazon.authorization(KEY, "POST", self.path, headers, body, "ecr")
        if self.headers["Authorization"] == expected and headers["x-amz-target"] == amazon.TARGET:
            token = base64.b64encode(LOGIN.encode()).decode()
            self._answer(200, {"authorizationData": [{"authorizationToken": token}]})
        else:
            self._answer(400, {"__type": "UnrecognizedClientException", "message": "The security token is invalid."})

    def _answer(self, status: int, said: object) -> None:
        content = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def sign_in(amazon_port: int) -> Iterator[None]:
    with HTTPServer(("127.0.0.1", amazon_port), _SignIn) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield
        server.shutdown()
        thread.join()


@pytest.mark.usefixtures("sign_in")
def test_a_key_for_amazons_registry_is_traded_for_its_password(
    build: Build, registry_port: int, tmp_path: Path
) -> None:
    directory = tmp_path / "registry"
    directory.mkdir()
    with registries.running(directory, registry_port, LOGIN) as registry:
        registry.push(image(tmp_path, [[*shell(), ("mark", {}, uuid.uuid4().bytes)]]), "team/cloud")
        name, lines = f"{registry.address}/team/cloud", Lines()

        def recipe(secret: str, image: str = name) -> object:
            return Template().from_aws_registry(image, KEY.access_key_id, secret, KEY.region)

        build(recipe(KEY.secret_access_key), f"amazon-{uuid.uuid4().hex[:8]}", on_build_logs=lines)
        assert lines.has("pulled from its registry")
        with pytest.raises(BuildException, match="refuses the access key: The security token is invalid") as failure:
            build(recipe("hunter2"), f"amazon-{uuid.uuid4().hex[:8]}")
        assert "hunter2" not in str(failure.value)
        with pytest.raises(BuildException, match="not one of Amazon's registries"):
            build(recipe("any", "registry.example.invalid/x"), f"amazon-{uuid.uuid4().hex[:8]}")
