"""A scheduler and workers of Dask distributed, each a process of its own on loopback, to be killed by tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest

__all__ = ["DaskCluster", "MakeCluster", "make_cluster", "needs_dask", "shared_cluster"]

START_TIMEOUT = 60.0
PROGRAM = "import sys; from distributed.cli.dask_{0} import main; sys.argv[0] = 'dask-{0}'; main()"


@pytest.fixture(scope="session")
def needs_dask(needs_process: None) -> None:
    """The test starts a scheduler and workers of Dask."""
    if find_spec("distributed") is None:
        pytest.skip("needs dask: distributed is not installed (the extra dask)")


@dataclass
class DaskCluster:
    """One scheduler with workers; ``environ`` is that of their processes."""

    directory: Path
    environ: dict[str, str]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    """By name: ``scheduler``, and the workers."""

    @property
    def address(self) -> str:
        """The address of the scheduler."""
        return str(json.loads((self.directory / "scheduler.json").read_text())["address"])

    def start(self, kind: str, name: str, *words: str) -> None:
        """Start a process of the cluster."""
        argv = [sys.executable, "-c", PROGRAM.format(kind), "--scheduler-file", "scheduler.json", "--no-dashboard"]
        with (self.directory / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [*argv, *words], cwd=self.directory, env=self.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def add_worker(self, name: str) -> None:
        """Start a worker of one thread and wait until the scheduler knows it."""
        self.start("worker", name, "--no-nanny", "--nthreads", "1", "--name", name, "--host", "127.0.0.1")
        self.wait_for_log(name, "Registered to:")

    def wait_for_log(self, name: str, text: str) -> None:
        """Wait until a process has written a text."""
        deadline = time.monotonic() + START_TIMEOUT
        while text not in (log := (self.directory / f"{name}.log").read_text()):
            assert time.monotonic() < deadline, log
            assert self.processes[name].poll() is None, log
            time.sleep(0.05)  # it writes to a file, so that nothing of it is lost if it is killed

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """End a process with a signal."""
        self.processes[name].send_signal(number)
        self.processes[name].wait(START_TIMEOUT)

    def stop(self) -> None:
        """End all processes."""
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait(START_TIMEOUT)


def start_cluster(directory: Path, workers: int = 2, **variables: str) -> DaskCluster:
    """Start a scheduler and workers.

    Args:
        directory: For the logs.
        workers: The number of workers.
        variables: Further environment variables of all processes.
    """
    directory.mkdir()
    cluster = DaskCluster(directory, {**os.environ, "DASK_LOGGING__DISTRIBUTED": "info", **variables})
    try:
        cluster.start("scheduler", "scheduler", "--host", "127.0.0.1", "--port", "0")
        cluster.wait_for_log("scheduler", "Scheduler at:")
        for number in range(workers):
            cluster.add_worker(f"worker{number}")
    except BaseException:
        cluster.stop()
        raise
    return cluster


MakeCluster = Callable[..., DaskCluster]


@pytest.fixture
def make_cluster(needs_dask: None, tmp_path: Path) -> Iterator[MakeCluster]:
    """Start clusters, as :func:`start_cluster`."""
    clusters: list[DaskCluster] = []

    def make(workers: int = 2, **variables: str) -> DaskCluster:
        clusters.append(start_cluster(tmp_path / f"cluster{len(clusters)}", workers, **variables))
        return clusters[-1]

    yield make
    for cluster in clusters:
        cluster.stop()


@pytest.fixture(scope="module")
def shared_cluster(needs_dask: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    """A scheduler and two workers for the tests of a module that kill none of them."""
    cluster = start_cluster(tmp_path_factory.mktemp("dask") / "cluster")
    yield cluster
    cluster.stop()
