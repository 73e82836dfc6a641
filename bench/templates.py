"""Times template builds against `docker build` on the same recipe, the same files and the same root filesystem, in turns."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from e2b import Template

from bench import server
from bench.dockerd import Docker, private_docker
from sandlot.engine.node.images import base
from sandlot.settings import Settings

FILES = 60
RECIPE = """FROM bench-base
COPY app /srv/app
RUN python3 -m compileall -q /srv/app
RUN head -c 20M /dev/zero > /srv/data
RUN echo {last} > /srv/last
"""


def make_context(directory: Path) -> None:
    app = directory / "app"
    app.mkdir()
    for number in range(FILES):
        (app / f"module_{number}.py").write_text(f"VALUE = {number}\n" * 50)


def sandlot_build(context: Path, environment: dict[str, str], last: str, *, fresh: bool) -> None:
    """The way users build: the official SDK, with its own polling."""
    recipe = (
        Template(file_context_path=str(context))
        .from_base_image()
        .set_user("root")
        .copy("app", "/srv/app")
        .run_cmd("python3 -m compileall -q /srv/app")
        .run_cmd("head -c 20M /dev/zero > /srv/data")
        .run_cmd(f"echo {last} > /srv/last")
    )
    Template.build(
        recipe, "bench", skip_cache=fresh, api_key=environment["E2B_API_KEY"], api_url=environment["E2B_API_URL"]
    )


def docker_build(docker: Docker, context: Path, last: str, *, fresh: bool) -> None:
    (context / "Dockerfile").write_text(RECIPE.format(last=last))
    subprocess.run(
        docker.command("build", "--quiet", *(["--no-cache"] if fresh else []), "--tag", "bench", str(context)),
        env={**os.environ, "DOCKER_BUILDKIT": "0"},
        check=True,
        capture_output=True,
    )


def timed(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def measure(rounds: int) -> dict[str, object]:
    contestants: dict[str, Callable[..., None]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-context-") as name, private_docker() as docker:
        context = Path(name)
        make_context(context)
        layer = Settings().cache_dir / "layers" / base.read_recipe().layer
        docker.import_directory(layer, "bench-base")
        with server.running("auto") as environment:
            contestants["sandlot"] = lambda last, fresh=False: sandlot_build(context, environment, last, fresh=fresh)
            contestants["docker"] = lambda last, fresh=False: docker_build(docker, context, last, fresh=fresh)
            seen: dict[str, dict[str, list[float]]] = {each: {} for each in contestants}
            for turn in range(rounds):
                for each, build in contestants.items():
                    kinds = seen[each]
                    kinds.setdefault("everything", []).append(timed(lambda b=build, t=turn: b(f"a{t}", fresh=True)))  # type: ignore[misc]
                    kinds.setdefault("nothing changed", []).append(timed(lambda b=build, t=turn: b(f"a{t}")))  # type: ignore[misc]
                    kinds.setdefault("last step changed", []).append(timed(lambda b=build, t=turn: b(f"b{t}")))  # type: ignore[misc]
            versions = docker.versions()
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cpus": os.cpu_count(), "kernel": platform.release(), "load": os.getloadavg()[0], **versions},
        "builder": "docker build, classic builder",
        "rounds": rounds,
        "median_s": {
            each: {kind: round(statistics.median(values), 3) for kind, values in kinds.items()}
            for each, kinds in seen.items()
        },
        "all_s": {
            each: {kind: [round(v, 3) for v in values] for kind, values in kinds.items()}
            for each, kinds in seen.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="Write the result there as JSON.")
    options = parser.parse_args()
    result = measure(options.rounds)
    medians: dict[str, dict[str, float]] = result["median_s"]  # type: ignore[assignment]
    for kind in medians["docker"]:
        ours, theirs = medians["sandlot"][kind], medians["docker"][kind]
        print(f"{kind:20} sandlot {ours:7.3f} s   docker {theirs:7.3f} s   {ours / theirs:.2f}x")
    if options.output:
        options.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
