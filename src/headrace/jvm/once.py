"""Things that are built once per machine, whoever comes first, and appear whole or not at all."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(lock: Path, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Holds a lock between processes. The kernel releases it when the holder dies, so it is never stale.

    >>> import tempfile
    >>> with exclusive(Path(tempfile.mkdtemp()) / "broker.lock"):
    ...     print("nobody else is here")
    nobody else is here
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if on_wait is not None:
                on_wait()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def build_once(
    target: Path,
    build: Callable[[Path], None],
    complete: Callable[[Path], bool],
    on_wait: Callable[[], None] | None = None,
) -> Path:
    """Builds the file or folder `target` unless it is complete already. Processes that come together build it once.

    `build` is given a path in a scratch folder next to the target, so the last step is a rename.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "answer.txt"
    >>> build_once(target, lambda path: path.write_text("42") and None, Path.is_file).read_text()
    '42'
    """
    if complete(target):
        return target
    with exclusive(target.with_name(f"{target.name}.lock"), on_wait):
        if complete(target):
            return target
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as scratch:
            draft = Path(scratch) / target.name
            build(draft)
            if target.is_dir():
                # Left by someone who deleted part of the cache: a folder can't be renamed over one that is not empty.
                shutil.rmtree(target)
            draft.replace(target)
    return target
