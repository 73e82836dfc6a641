"""The configuration file: what it means, and how it says what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.platform.fakes import ScriptedProvider
from tests.platform.world import Served, load_text

from sandlot.platform.config.configuration import load, variables
from sandlot.platform.config.models import WELL_KNOWN_VARIABLES
from sandlot.platform.core.errors import ConfigurationError
from sandlot.platform.core.model import TimeoutAction

WHOLE = """
default = "cloud"

[providers.here]
kind = "local"
template = "base"
timeout = 900

[providers.cloud]
kind = "e2b"
key_env = "CLOUD_KEY"

[providers.other]
kind = "url"
api_url = "https://api.example.org"
domain = "example.org"
key_env = "OTHER_KEY"

[agents.claude]
provider = "other"
template = "claude"
timeout = 7200
envs = { ANTHROPIC_API_KEY = { env = "MODEL_KEY" }, MODE = "fast" }

[envs]
TEAM = "tests"

[limits]
running = 7

[policy]
on_timeout = "delete"

[[webhooks]]
name = "ci"
url = "https://ci.example.org/hook"
secret_env = "HOOK_SECRET"
types = ["ready", "command.ended", "task.*"]
"""
HOOK = "[[webhooks]]\nname='x'\nurl='http://x'\nsecret_env='K'\n"
KEYS = {"CLOUD_KEY": "k-cloud", "OTHER_KEY": "k-other", "MODEL_KEY": "k-model", "HOOK_SECRET": "k-hook"}


def test_without_a_file_the_engine_of_this_server_is_the_provider() -> None:
    config = load(None, {}, has_engine=True)
    assert config.default == "local" and config.providers["local"].table.kind == "local"


def test_everything_a_file_can_say() -> None:
    config = load_text(WHOLE, KEYS, has_engine=True)
    assert config.default == "cloud"
    assert [config.providers[name].key for name in ("here", "cloud", "other")] == [None, "k-cloud", "k-other"]
    assert dict(config.agents["claude"].envs) == {"ANTHROPIC_API_KEY": "k-model", "MODE": "fast"}
    assert config.limits.running == 7 and config.policy.on_timeout is TimeoutAction.DELETE
    assert config.webhooks[0].types == {"ready", "command.ended", "task.*"}
    shown = repr(config) + str(config)
    assert not any(secret in shown for secret in KEYS.values()), "a secret shows in its text form"


def test_the_variables_it_refers_to_are_known(tmp_path: Path) -> None:
    file = tmp_path / "sandlot.toml"
    file.write_text(WHOLE)
    assert variables(file) == {*KEYS, *WELL_KNOWN_VARIABLES}
    file.write_text(f"{WHOLE}\n[models.own]\napi = 'openai'\nkey_env = 'OWN_KEY'\n")
    assert variables(file) == {*KEYS, "OWN_KEY"}


def test_models_are_those_of_the_file_or_else_those_whose_keys_are_in_the_environment() -> None:
    found = load_text("", {"GOOGLE_API_KEY": "g", "OPENAI_API_KEY": "o"}, has_engine=True).models
    assert [(each.name, each.key) for each in found] == [("openai", "o"), ("gemini", "g")]
    text = "[models.a]\napi = 'anthropic'\nurl = 'http://127.0.0.1:1'\n"
    (only,) = load_text(text, {"OPENAI_API_KEY": "o"}, has_engine=True).models
    assert (only.name, only.key, only.models) == ("a", None, ("*",))
    assert "'o'" not in repr(load_text("", {"OPENAI_API_KEY": "o"}, has_engine=True))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[models.x]\napi = 'openai'\nfallbacks = ['y']", ["models.x.fallbacks", "'y'"]),
        ("[models.x]\napi = 'shoe'", ["models.x.api"]),
        ("[providers.x]\nkind = 'e2b'\nkeyenv = 'K'", ["providers.x.keyenv", "unknown key", "key_env"]),
        ("[limit]\nrunning = 1", ["limit", "unknown key", "limits"]),
        ("[limits]\nrunnig = 1", ["limits.runnig", "running"]),
        ("[providers.x]\nkind = 'podman'", ["providers.x", "kind", "e2b", "docker"]),
        ("[providers.x]\nkind = 'docker'\nadress = 'unix:///x'", ["providers.x.adress", "address"]),
        ("[providers.x]\nkind = 'docker'\naddress = '/var/run/docker.sock'", ["providers.x.address"]),
        ("[providers.x]\nkind = 'e2b'", ["providers.x", "key is missing", "key_env"]),
        ("[providers.x]\nkind = 'e2b'\nkey_env = 'NOT_SET'", ["providers.x", "NOT_SET", "not set"]),
        ("[providers.x]\nkind = 'e2b'\nkey_file = '/no/such/file'", ["/no/such/file", "cannot be read"]),
        ("[providers.x]\nkind = 'url'\nkey_env = 'K'\napi_url = 'ftp://x'", ["providers.x.api_url"]),
        ("default = 'nope'", ["default", "nope", "no such provider"]),
        ("[agents.a]\nprovider = 'nope'", ["agents.a.provider", "nope"]),
        ("[agents.a]\nenvs = { A = { env = 'NOT_SET' } }", ["agents.a.envs.A", "NOT_SET"]),
        ("[[webhooks]]\nname='x'\nurl='http://x'", ["webhooks.x", "secret"]),
        (f"{HOOK}types = ['Ready']", ["webhooks.0.types", "Ready", "lower-case"]),
        ("not toml at all", ["not valid TOML"]),
    ],
)
def test_what_is_wrong_is_said_clearly(text: str, words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load_text(text, {"K": "sekrit-value"}, has_engine=True)
    for word in words:
        assert word in str(raised.value), str(raised.value)
    assert "sekrit-value" not in str(raised.value)


def test_without_an_engine_a_provider_elsewhere_is_needed() -> None:
    for text in ("", "[providers.x]\nkind = 'local'"):
        with pytest.raises(ConfigurationError, match="kind"):
            load_text(text, {}, has_engine=False)


async def test_agent_types_choose_provider_template_time_and_variables(tmp_path: Path) -> None:
    here, there = ScriptedProvider("here"), ScriptedProvider("other")
    config = load_text(WHOLE, KEYS, has_engine=True)
    async with Served(tmp_path, config, {"here": here, "cloud": ScriptedProvider("cloud"), "other": there}) as served:
        client = served.client()
        sandbox = await client.create(user_id="ada", agent_type="claude", envs={"MODE": "slow"})
        assert (sandbox.info.provider, sandbox.info.template_id, sandbox.info.timeout) == ("other", "claude", 7200)
        spec = next(iter(there.made.values())).spec
        assert dict(spec.envs) == {"TEAM": "tests", "ANTHROPIC_API_KEY": "k-model", "MODE": "slow"}
        plain = await client.create(user_id="ada", provider="here", template_id="base")
        assert plain.info.provider == "here" and len(here.made) == 1
        stored = b"".join(file.read_bytes() for file in tmp_path.glob("platform.db"))
        assert b"k-cloud" not in stored


def test_a_secret_may_be_bound_to_hosts() -> None:
    text = '[secrets]\nA = { env = "A_VALUE", hosts = ["api.example.com", "*.example.org"] }\nB = { env = "B_VALUE" }\n'
    found = load_text(text, {"A_VALUE": "a", "B_VALUE": "b"}, has_engine=True)
    assert found.secrets == {"A": "a", "B": "b"} and found.secret_hosts == {"A": ("api.example.com", "*.example.org")}
    with pytest.raises(ConfigurationError, match=r"secrets\.A"):
        load_text('[secrets]\nA = { env = "A_VALUE", hosts = ["https://x"] }\n', {"A_VALUE": "a"}, has_engine=True)
