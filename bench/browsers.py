"""Measures browsers: from `sessions.create` to a loaded page, beside a Chromium that Playwright starts on the host."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import server

RUNTIMES = ("container", "gvisor")
PACKAGES = ("browserbase==1.22.0", "playwright==1.65.0")
CLIENT = Path(__file__).with_name("browsers_client.py")
BUILD_S = 1800


def measure(environment: dict[str, str], python: Path, rounds: int, rest_s: float) -> dict[str, float]:
    """Medians in seconds, and their ratio."""
    given = {
        **{name: value for name, value in os.environ.items() if not name.startswith("BROWSERBASE_")},
        "BROWSERBASE_BASE_URL": f"{environment['E2B_API_URL']}/browserbase",
        "BROWSERBASE_API_KEY": environment["E2B_API_KEY"],
        "CHROMIUM": shutil.which("chromium") or "chromium",
    }
    argv = [str(python), str(CLIENT), str(rounds), str(rest_s)]
    done = subprocess.run(argv, env=given, capture_output=True, text=True, check=True, timeout=BUILD_S)
    found = json.loads(done.stdout)
    medians = {name: statistics.median(times) for name, times in found.items()}
    return {
        "session_s": medians["session"],
        "local_s": medians["local"],
        "ratio": medians["session"] / medians["local"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--rest", type=float, default=3.0, help="Seconds between turns, in which the warm pool fills.")
    parser.add_argument("--output", type=Path, help="Write the result there as JSON.")
    options = parser.parse_args()
    result = {}
    with tempfile.TemporaryDirectory(prefix="sandlot-bench-") as place:
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        python = Path(place) / "bin" / "python"
        subprocess.run([str(python), "-m", "pip", "install", "-q", *PACKAGES], check=True)
        for runtime in RUNTIMES:
            with server.observed(runtime) as observed:
                build = [str(server.LAUNCHER), "template", "build", "--stock", "chromium"]
                subprocess.run(
                    [*build, "--data-dir", str(observed.data_dir)], check=True, capture_output=True, timeout=BUILD_S
                )
                result[runtime] = measure(observed.environment, python, options.rounds, options.rest)
            print(f"{runtime:10} " + "   ".join(f"{name} {value:6.3f}" for name, value in result[runtime].items()))
    if options.output:
        options.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
