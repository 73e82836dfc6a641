"""The secrets of E2B's SDK against the API: made, updated, listed, deleted; the value is never told."""

from __future__ import annotations

import pytest
from e2b import AsyncSecret, SecretException, SecretNotFoundException
from e2b.exceptions import RateLimitException
from tests.api.servers import Doors

from sandlot.engine.control import secrets

CANARY = "canary-5e0a7b"


async def test_the_life_of_a_secret_with_the_sdk(doors: Doors) -> None:
    made = await AsyncSecret.create("OpenAI-Key", CANARY, metadata={"for": "tests"}, **doors.sdk)
    assert (made.name, made.version, made.metadata) == ("openai-key", 1, {"for": "tests"})
    assert made.secret_id.startswith("sec_")
    again = await AsyncSecret.update("openai-KEY", "another", **doors.sdk)
    assert (again.version, again.metadata, again.secret_id) == (2, {"for": "tests"}, made.secret_id)
    third = await AsyncSecret.update(made.secret_id, "third", metadata={}, **doors.sdk)
    assert (third.version, third.metadata) == (3, {})
    assert (await AsyncSecret.get_info("openai-key", **doors.sdk)).version == 3
    assert await AsyncSecret.exists("openai-key", **doors.sdk) and not await AsyncSecret.exists("none", **doors.sdk)
    assert await AsyncSecret.destroy(made.secret_id, **doors.sdk)
    assert not await AsyncSecret.destroy(made.secret_id, **doors.sdk)
    with pytest.raises(SecretNotFoundException):
        await AsyncSecret.update("openai-key", "x", **doors.sdk)
    with pytest.raises(SecretNotFoundException):
        await AsyncSecret.get_info("openai-key", **doors.sdk)


async def test_names_with_odd_characters_are_found(doors: Doors) -> None:
    await AsyncSecret.create("team/a b ä", CANARY, **doors.sdk)
    assert (await AsyncSecret.get_info("team/a b ä", **doors.sdk)).name == "team/a b ä"
    assert await AsyncSecret.destroy("team/a b ä", **doors.sdk)


async def test_lists_are_paged_and_of_one_team(doors: Doors) -> None:
    for number in range(3):
        await AsyncSecret.create(f"s{number}", CANARY, **doors.sdk)
    paginator, seen = AsyncSecret.list(limit=2, **doors.sdk), []
    while paginator.has_next:
        seen += [each.name for each in await paginator.next_items()]
    assert seen == ["s0", "s1", "s2"]
    other = await doors.access.create_team("others")
    _, key = await doors.access.create_key(other.id, "k")
    theirs = {**doors.sdk, "api_key": key}
    assert await AsyncSecret.list(**theirs).next_items() == []
    assert not await AsyncSecret.exists("s0", **theirs) and not await AsyncSecret.destroy("s0", **theirs)


@pytest.mark.parametrize(
    ("name", "value", "metadata", "words"),
    [
        ("", "x", {}, "name"),
        ("sec_mine", "x", {}, "sec_"),
        ("a{b", "x", {}, "name"),
        ("n" * 129, "x", {}, "128"),
        ("a", "", {}, "value"),
        ("a", "line\nbreak", {}, "line breaks"),
        ("a", "v" * (secrets.MAX_VALUE + 1), {}, "bytes"),
        ("a", "x", {"k": "v" * 2000}, "metadata"),
        ("a", "x", {str(n): "v" for n in range(33)}, "metadata"),
    ],
)
async def test_what_cannot_be_is_refused_with_a_word_of_help(
    doors: Doors, name: str, value: str, metadata: dict[str, str], words: str
) -> None:
    with pytest.raises(SecretException, match=words):
        await AsyncSecret.create(name, value, metadata=metadata, **doors.sdk)


async def test_a_taken_name_and_a_full_team_are_refused(doors: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    await AsyncSecret.create("one", "x", **doors.sdk)
    with pytest.raises(SecretException, match="already"):
        await AsyncSecret.create("ONE", "x", **doors.sdk)
    monkeypatch.setattr(doors.secrets, "_most", 1)
    with pytest.raises(RateLimitException, match="may not have more"):
        await AsyncSecret.create("two", "x", **doors.sdk)
