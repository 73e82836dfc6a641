"""Measures the code interpreter: from create to a first cell, and a cell's round trip beside a plain jupyter_client on the host.

    eval "$(./sandlot env)"; .venv/bin/python -m bench.interpreter --name container

It uses the server that the environment names, which must have the template (`./sandlot template build --stock
code-interpreter-v1`). The reference runs in this same run, its cells interleaved with those of the sandbox.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx
from e2b import Sandbox
from tests.interpreter.environments import KERNEL_LOCK, SERVER_LOCK, python_with

from bench import machine

TEMPLATE = "code-interpreter-v1"
RESULTS = Path(__file__).parent / "results"
AIM = 3.0  # times the reference's round trip, for `container`

# Answers each line of input with the seconds that one cell took.
REFERENCE = """
import asyncio, sys, time
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager

class Specs(KernelSpecManager):
    def get_kernel_spec(self, name):
        argv = [sys.argv[1], "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=argv, display_name=name, language="python")

async def main():
    manager = AsyncKernelManager(kernel_spec_manager=Specs(), connection_file=sys.argv[2])
    await manager.start_kernel()
    client = manager.client()
    client.start_channels()
    await client.wait_for_ready()
    print("ready", flush=True)
    for line in sys.stdin:
        began = time.perf_counter()
        await client.execute_interactive("1+1", output_hook=lambda message: None, timeout=60)
        print(time.perf_counter() - began, flush=True)
    client.stop_channels()
    await manager.shutdown_kernel(now=True)

asyncio.run(main())
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--name", required=True, help="what is measured: container or gvisor")
    parser.add_argument("--rounds", type=int, default=10, help="sandboxes made")
    parser.add_argument("--cells", type=int, default=20, help="cells per sandbox")
    options = parser.parse_args()
    create: list[float] = []
    first: list[float] = []
    ours: list[float] = []
    plain: list[float] = []
    with reference() as plain_cell:
        for _ in range(options.rounds):
            began = time.perf_counter()
            sandbox = Sandbox.create(TEMPLATE, timeout=120)
            create.append(time.perf_counter() - began)
            try:
                with interpreter(sandbox) as cell:
                    cell()
                    first.append(time.perf_counter() - began)
                    for _ in range(options.cells):
                        ours.append(cell())
                        plain.append(plain_cell())
            finally:
                sandbox.kill()
    report(options.name, {"create": create, "create to first cell": first, "cell": ours, "cell, jupyter_client": plain})


@contextmanager
def interpreter(sandbox: Sandbox) -> Iterator[Callable[[], float]]:
    """Runs `1+1` as the code-interpreter SDKs do, on one connection."""
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49999"}
    token = sandbox.connection_config.sandbox_headers.get("X-Access-Token")
    if token:
        headers["X-Access-Token"] = token
    base = sandbox.connection_config.get_sandbox_url(sandbox.sandbox_id, sandbox.sandbox_domain)
    with httpx.Client(base_url=base, headers=headers, timeout=60) as client:

        def cell() -> float:
            began = time.perf_counter()
            answer = client.post("/execute", json={"code": "1+1"})
            assert '"text":"2"' in answer.text, f"{answer.status_code}: {answer.text}"
            return time.perf_counter() - began

        yield cell


@contextmanager
def reference() -> Iterator[Callable[[], float]]:
    """Runs `1+1` through jupyter_client alone, in the same versions."""
    with tempfile.TemporaryDirectory(prefix="sandlot-bench-") as state:
        command = [
            str(python_with(SERVER_LOCK)),
            "-c",
            REFERENCE,
            str(python_with(KERNEL_LOCK)),
            f"{state}/kernel.json",
        ]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "ready\n", "the reference kernel did not start"

        def cell() -> float:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            return float(process.stdout.readline())

        cell()
        yield cell
        process.stdin.close()
        process.wait(20)


def report(name: str, samples: dict[str, list[float]]) -> None:
    summary = {
        what: {
            "p50_ms": round(statistics.median(values) * 1000, 2),
            "p95_ms": round(_p95(values) * 1000, 2),
            "n": len(values),
        }
        for what, values in samples.items()
    }
    ratio = statistics.median(samples["cell"]) / statistics.median(samples["cell, jupyter_client"])
    for what, numbers in summary.items():
        print(f"{what:24} p50 {numbers['p50_ms']:9.2f} ms   p95 {numbers['p95_ms']:9.2f} ms")
    print(f"cell / jupyter_client    {ratio:.2f} (aim for container: at most {AIM})")
    record = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "name": name,
        "machine": machine.facts(),
        "ratio": round(ratio, 2),
        "results": summary,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"interpreter-{name}.json").write_text(json.dumps(record, indent=2, default=str) + "\n")


def _p95(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(0.95 * len(values)))]


if __name__ == "__main__":
    main()
