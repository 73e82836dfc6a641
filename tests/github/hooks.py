"""Webhooks as GitHub sends them: payloads from the emulator's state, signed, over real HTTP."""

from __future__ import annotations

import hashlib
import hmac
import json
import uuid
from typing import Any

import httpx
from tests.github.emulator import Emulator
from tests.github.payloads import Payloads
from tests.github.state import Comment, EmulatedIssue, EmulatedPull, EmulatedRepository, Job, WorkflowRun, moment

SECRET = "the secret of the webhooks"


def signature(body: bytes, secret: str = SECRET) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


class Hooks:
    """Sends to a server's `/webhooks/github`."""

    def __init__(self, emulator: Emulator, there: EmulatedRepository) -> None:
        self.emulator, self.there, self.show = emulator, there, Payloads(emulator)
        self.url = ""
        self.http = httpx.AsyncClient(trust_env=False, timeout=60, verify=False)

    async def send(self, event: str, payload: dict[str, Any], id: str | None = None, **headers: str) -> httpx.Response:
        body = json.dumps(payload).encode()
        return await self.post(event, body, id, **headers)

    async def post(self, event: str, body: bytes, id: str | None = None, **headers: str) -> httpx.Response:
        sent = {
            "content-type": "application/json",
            "user-agent": "GitHub-Hookshot/1234567",
            "x-github-event": event,
            "x-github-delivery": id or str(uuid.uuid4()),
            "x-hub-signature-256": signature(body),
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        return await self.http.post(self.url, content=body, headers=sent)

    def about(self, action: str, login: str, **parts: Any) -> dict[str, Any]:
        sender = self.show.user(self.emulator.user(login))
        return {"action": action, "repository": self.show.repository(self.there), "sender": sender, **parts}

    def labelled(self, issue: EmulatedIssue, label: str = "sandlot", by: str = "ada") -> dict[str, Any]:
        parts = {"issue": self.show.issue(self.there, issue), "label": self.show.label(self.there, label)}
        return self.about("labeled", by, **parts)

    def commented(self, issue: EmulatedIssue, text: str, by: str = "ada") -> dict[str, Any]:
        made = Comment(self.emulator.number(), self.emulator.user(by), text, moment())
        issue.comments.append(made)
        parts = {"issue": self.show.issue(self.there, issue), "comment": self.show.comment(self.there, issue, made)}
        return self.about("created", by, **parts)

    def reviewed(
        self, pull: EmulatedPull, text: str, *lines: tuple[str, int, str], by: str = "ada", state: str = "commented"
    ) -> dict[str, Any]:
        number, user = self.emulator.number(), self.emulator.user(by)
        for path, line, said in lines:
            made = Comment(self.emulator.number(), user, said, moment(), path, line, pull.last_head)
            made.review = number
            pull.review_comments.append(made)
        review = {"id": number, "node_id": "PRR_1", "user": self.show.user(user), "body": text, "state": state}
        pull.reviews.append({**review, "state": state.upper(), "submitted_at": moment()})
        return self.about("submitted", by, review=review, pull_request=self.show.pull(self.there, pull))

    def failed(self, branch: str, *jobs: Job, by: str = "ada", conclusion: str = "failure") -> dict[str, Any]:
        """A run of a workflow that ended at the branch's tip."""
        id, sha = self.emulator.number(), self.there.tip(branch) or ""
        run = WorkflowRun(id, "CI", ".github/workflows/ci.yml", branch, sha, conclusion, list(jobs))
        self.there.runs[id] = run
        return self.about("completed", by, workflow_run=self.show.workflow_run(self.there, run))

    def closed(self, pull: EmulatedPull, by: str = "ada") -> dict[str, Any]:
        return self.about("closed", by, pull_request=self.show.pull(self.there, pull))
