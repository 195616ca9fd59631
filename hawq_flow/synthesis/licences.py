"""No more tools at once than there are licences: N lock files, one held while a tool runs.

The locks are the system's (flock), so a process that is killed gives its place back, once its tool has ended too
(``tools.run(hold=...)``). They count tools that are started through this package on this machine; who else uses the
licence server is seen by the failure, which waits and retries.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

POLL_S = 0.2
MAX_WAIT_S = 900.0


def folder(configured: str) -> Path:
    """The folder of the lock files: the configured one, or this user's among the temporary files."""
    return Path(configured) if configured else Path(tempfile.gettempdir()) / f"hawq_flow-licences-{os.getuid()}"


@contextlib.contextmanager
def place(count: int, where: Path, waiting: Callable[[], None], stop: threading.Event) -> Iterator[int]:
    """Hold one of ``count`` places: its lock's file descriptor. ``waiting`` is called once when all are taken.

    Who asks for fewer places than another sees only the first ones: the smallest count of all is kept.
    ``KeyboardInterrupt`` when ``stop`` is set meanwhile.
    """
    where.mkdir(parents=True, exist_ok=True)
    told = False
    while True:
        for number in range(count):
            path = where / f"place-{number}.lock"
            # No child holds the lock on, but a run's guard. Another user's file can be read, not made or touched.
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | (0 if path.exists() else os.O_CREAT), 0o644)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                continue
            try:
                yield handle
            finally:
                os.close(handle)
            return
        if not told:
            waiting()
            told = True
        if stop.wait(POLL_S):
            raise KeyboardInterrupt


def wait_s(first: float, retry: int) -> float:
    """Seconds before retry 1, 2, ...: doubling, up to a quarter of an hour."""
    return float(min(first * 2.0 ** (retry - 1), max(MAX_WAIT_S, first)))
