"""The emulator answers in the shapes that GitHub promises: else the forge would be tested against a dream."""

from __future__ import annotations

import time

import httpx
import jwt
import pytest
from tests.github.emulator import running
from tests.github.shapes import problems
from tests.github.state import Job, WorkflowRun
from tests.github.world import rsa_pair


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """One answer of each kind, over HTTP."""
    with running(tmp_path_factory.mktemp("github")) as emulator:
        there, token = emulator.repository("ada/app", robot="write"), emulator.token("robot")
        private, public = rsa_pair()
        app = emulator.app("sandlot-bot", public, contents="write")
        app.installations["ada"] = 5
        sha = emulator.commit(there, "topic", {"a.txt": "a\n"})
        emulator.check(there, sha, "ci", "failure")
        run = WorkflowRun(
            5, "CI", ".github/workflows/ci.yml", "topic", sha, "failure", [Job(6, "test", "failure", "log")]
        )
        there.runs[5] = run
        headers = {"authorization": f"token {token}"}
        with httpx.Client(base_url=f"{emulator.url}/api/v3", headers=headers, trust_env=False) as http:

            def got(path: str, base: str = "/repos/ada/app") -> object:
                answer = http.get(base + path)
                assert answer.status_code == 200, answer.text
                return answer.json()

            def sent(path: str, /, **body: object) -> object:
                answer = http.post("/repos/ada/app" + path, json=body)
                assert answer.status_code in (200, 201), answer.text
                return answer.json()

            found = {"pull": sent("/pulls", title="x", head="topic", base="main")}
            sent("/issues/1/labels", labels=["a"])
            found["issue comment"] = sent("/issues/1/comments", body="x")
            found["review comment"] = sent("/pulls/1/comments", body="x", path="a.txt", line=1)
            found["status"] = sent(f"/statuses/{sha}", state="success", context="x")
            emulator.issue(there, "A title", "A body", "ada", "bug")
            found |= {"repository": got(""), "branch": got("/branches/main"), "issue": got("/issues/2")}
            found |= {"pull side": got("/pulls/1")["head"], "user": got("/user", "")}  # type: ignore[index]
            found["check run"] = got(f"/commits/{sha}/check-runs")["check_runs"][0]  # type: ignore[index]
            found |= {"run": got("/actions/runs/5"), "permission": got("/collaborators/ada/permission")}
            found["job"] = got("/actions/runs/5/jobs")["jobs"][0]  # type: ignore[index]
            found["merge"] = http.put("/repos/ada/app/pulls/1/merge", json={}).json()
            claims = {"iss": str(app.id), "iat": 1_700_000_000, "exp": 4_000_000_000}
            refused = http.get("/app", headers={"authorization": f"Bearer {jwt.encode(claims, private, 'RS256')}"})
            assert refused.status_code == 401
            claims = {"iss": str(app.id), "iat": int(time.time()) - 60, "exp": int(time.time()) + 300}
            http.headers["authorization"] = f"Bearer {jwt.encode(claims, private, 'RS256')}"
            found |= {"app": got("/app", ""), "installation": got("/installation")}
            made = http.post("/app/installations/5/access_tokens", json={"repositories": ["app"]})
            found["token"] = made.json()
        return found


@pytest.mark.parametrize(
    "name",
    [
        "repository",
        "branch",
        "pull",
        "pull side",
        "issue",
        "issue comment",
        "review comment",
        "check run",
        "status",
        "token",
        "installation",
        "app",
        "user",
        "run",
        "job",
        "permission",
        "merge",
    ],
)
def test_an_answer_has_its_promised_shape(answers: dict[str, object], name: str) -> None:
    assert problems(name, answers[name]) == []


def test_a_wrong_shape_is_noticed() -> None:
    assert problems("merge", {"merged": "yes", "message": "x"}) == ["merge.merged is 'yes'", "merge.sha is missing"]
