"""What the sandbox was told it is: access token, environment, default user and directory. Set by /init, any number of times."""

from __future__ import annotations

import os
from _operator import _compare_digest as compare_digest  # what hmac exports, without importing OpenSSL

from envd import hostname, logs
from envd.codecs import Undecodable, parse_json
from envd.users import User, Users

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class BadPath(ValueError):
    """A path that names no place: the text says why."""


class State:
    """The one place that knows the sandbox's identity and defaults."""

    def __init__(self, users: Users, run_dir: str) -> None:
        self.users = users
        self._run_dir = run_dir
        self.token: str | None = None
        self.default_user = "root"
        self.default_workdir = ""
        self._user_env: dict[str, str] = {}
        self._own_env = {"E2B_SANDBOX": "true"}
        self._trust_env: dict[str, str] = {}

    def init(self, body: bytes) -> None:
        """Take over what the body sets; keys it does not name stay as they are. Raises `Undecodable`."""
        data = parse_json(body) if body else {}
        if not isinstance(data, dict):
            raise Undecodable("the body must be an object")
        texts = {name: _text(data, name) for name in ("accessToken", "defaultUser", "defaultWorkdir")}
        own = {variable: _text(data, name) for name, variable in _OWN_VARIABLES.items()}
        variables, authorities = _variables(data.get("envVars")), _text(data, "caBundle")
        if "accessToken" in data:
            self.token = texts["accessToken"] or None
        self.default_user = texts["defaultUser"] or self.default_user
        self.default_workdir = texts["defaultWorkdir"] or self.default_workdir
        if variables is not None:
            self._user_env = variables
        self._own_env.update({name: value for name, value in own.items() if value})
        hostname.take(own["E2B_SANDBOX_ID"])
        if authorities:
            self._trust(authorities)
        self._write_marks()
        self._reseed()

    def allows(self, token: str | None) -> bool:
        """Whether a request that carries `token` may do everything."""
        return self.token is None or (token is not None and self.matches(token, self.token))

    @staticmethod
    def matches(given: str, expected: str) -> bool:
        """Compare secrets without telling, by the time it takes, how much of them is right."""
        return compare_digest(given.encode("utf-8", "surrogateescape"), expected.encode("utf-8", "surrogateescape"))

    @property
    def run_dir(self) -> str:
        return self._run_dir

    def environment(self) -> dict[str, str]:
        """The variables every command gets; what identifies the sandbox cannot be overridden by its creator."""
        return {**self._trust_env, **self._user_env, **self._own_env}

    def user(self, name: str | None) -> User:
        """Raises `UnknownUser`."""
        return self.users.find(self.default_user if name is None else name)

    def resolve(self, path: str, user: User) -> str:
        """The absolute path meant by `path`. Raises `BadPath`."""
        path = path or self.default_workdir
        if "\0" in path:
            raise BadPath("a path cannot contain a NUL byte")
        if path[:1] == "~":
            if len(path) > 1 and path[1] not in "/\\":
                raise BadPath(
                    f"failed to expand path '{path}' for user '{user.name}': cannot expand user-specific home dir"
                )
            return os.path.normpath(f"{user.home}/{path[1:]}")
        return path if path.startswith("/") else os.path.normpath(f"{user.home}/{path}")

    def _trust(self, authorities: str) -> None:
        if os.getpid() == 1:  # else the machine's files are not ours to change
            from envd.authorities import take

            self._trust_env = take(authorities)

    def _write_marks(self) -> None:
        """Programs that cannot see the daemon's environment find the sandbox's identity in files."""
        try:
            os.makedirs(self._run_dir, mode=0o755, exist_ok=True)
            for name, value in self._own_env.items():
                path = f"{self._run_dir}/.{name}"
                part = f"{path}.part"
                with open(part, "w", encoding="utf-8") as file:
                    file.write(value)
                os.chmod(part, 0o444)
                os.replace(part, path)
        except OSError as error:
            logs.report(f"could not write identity files below {self._run_dir}", error)

    @staticmethod
    def _reseed() -> None:
        """After a restore many sandboxes share one memory image: what is random must differ again."""
        import sys

        if "random" in sys.modules:
            sys.modules["random"].seed()


_OWN_VARIABLES = {"sandboxId": "E2B_SANDBOX_ID", "templateId": "E2B_TEMPLATE_ID"}


def _text(data: dict[str, Any], name: str) -> str:
    value = data.get(name)
    if value is None:
        return ""
    if not isinstance(value, str) or "\0" in value:
        raise Undecodable(f"{name} must be a string without NUL")
    return value


def _variables(value: Any) -> dict[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise Undecodable("envVars must be an object of strings")
    for name, item in value.items():
        if not name or "=" in name or "\0" in name or "\0" in item:
            raise Undecodable(f"envVars cannot hold {name!r}")
    return dict(value)
