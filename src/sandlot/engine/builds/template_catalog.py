"""The finished templates of a team: tags, publishing, deletion."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from sandlot.engine.builds.build_states import BuildStates, emptied
from sandlot.engine.builds.template_names import DEFAULT_TAG, parse_name, parse_tags
from sandlot.engine.control.sandbox_states import LIVE
from sandlot.engine.core.errors import InvalidRequest, NotFound
from sandlot.engine.core.model import Build, BuildStatus, Tag, Template, built
from sandlot.engine.core.ports import BuildStore, Clock, SandboxStore, TagStore, TemplateStore
from sandlot.program import SANDLOT


class TemplateCatalog:
    """Methods take `team_id` and change only that team's templates."""

    def __init__(
        self,
        *,
        templates: TemplateStore,
        builds: BuildStore,
        tags: TagStore,
        sandboxes: SandboxStore,
        clock: Clock,
        discard: Callable[[str], Awaitable[None]],  # a saved state, by name
        changed: Callable[[str], Awaitable[None]] | None = None,  # a template, by id: machines made from it are stale
    ) -> None:
        self._templates, self._builds, self._tags, self._sandboxes = templates, builds, tags, sandboxes
        self._clock, self._discard, self._changed = clock, discard, changed
        self._states = BuildStates(builds)
        self._tagging = asyncio.Lock()

    async def own(self, team_id: str, ref: str) -> Template:
        """A template of the team, by name or id. Raises `NotFound`."""
        found = await self._templates.resolve(team_id, ref.partition(":")[0])
        if found is None or found.team_id != team_id or found.source is not None:
            raise NotFound(
                f"template {ref!r} not found among yours; `{SANDLOT} template list` shows the ones there are"
            )
        return found

    async def add_build(self, template: Template, build: Build) -> None:
        """A build is finished: give it its tags, and empty builds that have none left."""
        async with self._tagging:
            await self._tag(template, build, build.tags, before=await self._tags.list(template.id))

    async def _tag(self, template: Template, build: Build, tags: Sequence[str], before: Sequence[Tag]) -> None:
        now = self._clock()
        await self._tags.assign(
            [Tag(template_id=template.id, tag=tag, build_id=build.id, created_at=now) for tag in tags]
        )
        if DEFAULT_TAG in tags:
            await self._make_default(template.id, build)
        await self._empty_untagged(template.id, before)

    async def _make_default(self, template_id: str, build: Build) -> None:
        current = await self._templates.resolve(build.team_id, template_id)
        if current is not None:
            await self._templates.put(replace(built(current, build), updated_at=self._clock()))

    async def _empty_untagged(self, template_id: str, before: Sequence[Tag]) -> None:
        """Tags have moved: empty the builds that had one before and have none now."""
        if self._changed is not None:
            await self._changed(template_id)
        tagged = {tag.build_id for tag in await self._tags.list(template_id)}
        for build_id in {tag.build_id for tag in before} - tagged:
            build = await self._builds.get(build_id)
            if build is not None:
                await self._empty(build)

    async def tidy(self) -> None:
        """Empty every build without a tag, also those that an earlier process left because it was killed."""
        tagged: dict[str, set[str]] = {}
        for build in await self._builds.query(statuses=[BuildStatus.READY]):
            if build.template_id not in tagged:
                tagged[build.template_id] = {tag.build_id for tag in await self._tags.list(build.template_id)}
            if build.id not in tagged[build.template_id]:
                await self._empty(build)

    async def _empty(self, build: Build) -> None:
        with suppress(NotFound):  # deleted meanwhile, with all that it had
            await self._states.change(build.id, emptied)
        if build.content is not None and build.content.checkpoint is not None:
            await self._discard(build.content.checkpoint)

    # Tags

    async def assign(self, team_id: str, target: str, tags: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        """Give the build that `name:tag` means more tags; returns its id and the new tags."""
        reference = parse_name(target)
        template = await self.own(team_id, target)
        wanted = parse_tags(tags, template.name)
        if not wanted:
            raise InvalidRequest("tags must name at least one tag")
        async with self._tagging:
            before = await self._tags.list(template.id)
            build_id = {tag.tag: tag.build_id for tag in before}.get(reference.tag or DEFAULT_TAG)
            build = await self._builds.get(build_id) if build_id else None
            if build is None:
                raise NotFound(f"template {template.name!r} has no build tagged {reference.tag or DEFAULT_TAG!r}")
            await self._tag(template, build, wanted, before)
        return build.id, wanted

    async def unassign(self, team_id: str, name: str, tags: Sequence[str]) -> None:
        template = await self.own(team_id, name)
        wanted = parse_tags(tags, template.name)
        if DEFAULT_TAG in wanted:
            raise InvalidRequest(
                "the tag 'default' cannot be removed; build the template again to replace what it means"
            )
        async with self._tagging:
            before = await self._tags.list(template.id)
            if missing := sorted(set(wanted) - {tag.tag for tag in before}):
                raise NotFound(f"template {template.name!r} has no tag {missing[0]!r}")
            await self._tags.remove(template.id, wanted)
            await self._empty_untagged(template.id, before)

    async def tags(self, team_id: str, ref: str) -> Sequence[Tag]:
        return await self._tags.list((await self.own(team_id, ref)).id)

    # Publishing and deletion

    async def publish(self, team_id: str, ref: str, public: bool | None) -> Template:
        """Let every team start sandboxes from it, or no longer."""
        template = await self.own(team_id, ref)
        if public is not None and public != template.public:
            template = replace(template, public=public, updated_at=self._clock())
            await self._templates.put(template)
        return template

    async def delete(self, team_id: str, ref: str) -> None:
        """Raises `InvalidRequest` while sandboxes made from it are running or paused."""
        template = await self.own(team_id, ref)
        users = await self._sandboxes.query(states=LIVE, template=template.id, limit=1)
        if users:
            user = f"sandbox {users[0].id!r}" if users[0].team_id == team_id else "a sandbox of another team"
            raise InvalidRequest(
                f"template {template.name!r} is in use by {user}; kill its sandboxes first, then delete it"
            )
        unfinished = (BuildStatus.BUILDING,)
        if await self._builds.query(template_id=template.id, statuses=unfinished):
            raise InvalidRequest(
                f"template {template.name!r} is being built; wait for the end of the build, then delete it"
            )
        states = {
            build.content.checkpoint for build in await self._builds.query(template_id=template.id) if build.content
        }
        await self._templates.delete(template.id)
        await self._builds.forget(template.id)
        if self._changed is not None:
            await self._changed(template.id)
        for state in filter(None, {*states, template.checkpoint}):
            await self._discard(state)
