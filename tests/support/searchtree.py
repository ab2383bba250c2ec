"""A tree with everything that search programs disagree about, and targets that differ in what searches there."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from harness import ExecutionContext, connect
from harness.backend import Capabilities

__all__ = ["ENGINES", "FILES", "grow", "searching"]

ENGINES = ("rg", "grep", "busybox", "here")
PROGRAMS = (
    *("cat", "chmod", "cmp", "cp", "cut", "date", "dd", "dirname", "env", "find", "grep", "head", "id", "kill", "ln"),
    *("ls", "mkdir", "mktemp", "mv", "od", "printf", "ps", "readlink", "rm", "sed", "setsid", "sh", "sha256sum"),
    *("sleep", "sort", "stat", "sync", "tail", "test", "touch", "tr", "true", "uname", "wc", "xargs"),
)
APPLETS = (*PROGRAMS, "ash", "awk", "base64")
FILES: dict[bytes, bytes] = {
    b"plain.txt": b"first\nneedle here\nneedles\nno\na.c abc\n",
    b"with space.txt": b"a needle in space\n",
    b"new\nline.txt": b"needle\nbehind needle\n",
    b"-dash.txt": b"--needle\n-e needle\n",
    b"\xff\xfe.txt": b"needle in a strange name\n",
    b"semi;$(x)'\"`.txt": b"needle quoted\n",
    b"a:1:b.txt": b"2:needle\n",
    b".hidden": b"needle hidden\n",
    b".hid/inner.txt": b"needle inner\n",
    b"crlf.txt": b"one\r\nneedle\r\nend\r\n",
    b"no_end.txt": b"x\nneedle",
    b"empty.txt": b"",
    b"blank.txt": b"\n\n",
    b"latin1.txt": b"caf\xe9 needle\n",
    b"utf8.txt": "café Éclair needle Ä ß Größe\n".encode(),
    b"bom.txt": b"\xef\xbb\xbfneedle\n",
    b"utf16.txt": "needle\n".encode("utf-16"),
    b"binary_early": b"needle\n\0\nneedle\n",
    b"binary_late": b"needle\n" + b"x" * 79 * 1 + b"\n" + b"filler line\n" * 20_000 + b"\0\nneedle\n",
    b"giant.txt": b"y" * 1_000 + b"needle" + b"z" * 8_000 + b"\nneedle after\n",
    b"dist": b"a file named dist: needle\n",
    b"node_modules/m.js": b"needle\n",
    b"deep/target/t.txt": b"needle\n",
    b"deep/er/needle.py": b"def needle():\n    return 'needle'\n",
    b"deep/er/other.py": b"NEEDLE = 1\nx = '[]x-'\n\tneedle\n",
    b".gitignore": b"# comment\n*.log\n!keep.log\n/build\ntmp*/\n\\!odd\nsub/skip.txt\n**/gen/*.c\ntrail \n",
    b"a.log": b"needle\n",
    b"keep.log": b"needle kept\n",
    b"build/out.txt": b"needle\n",
    b"deep/build": b"needle: only the top one is ignored\n",
    b"tmpdir/x.txt": b"needle\n",
    b"tmpfile": b"needle: no directory\n",
    b"!odd": b"needle\n",
    b"sub/skip.txt": b"needle\n",
    b"sub/gen/a.c": b"needle\n",
    b"sub/gen/a.h": b"needle\n",
    b"sub/.gitignore": b"!*.log\nlocal.txt\n",
    b"sub/b.log": b"needle: kept by the nearer file\n",
    b"sub/local.txt": b"needle\n",
    b"sub/deep/local.txt": b"needle\n",
    b"trail": b"needle\n",
    b"inner/.git/HEAD": b"needle\n",
    b"inner/.gitignore": b"only.txt\n",
    b"inner/c.log": b"needle: a repository of its own\n",
    b"inner/only.txt": b"needle\n",
    b"digits/a.gitx.py": b"needle\n",
    b"digits/.gitkeep": b"needle\n",
    b"digits/git": b"needle\n",
    b"beside/.git": b"gitdir: elsewhere, needle\n",
    b"beside/d.log": b"needle: a repository of its own too\n",
}


def grow(top: Path) -> None:
    """Make the tree, with links, a loop and a pipe. It is a repository only by its ``.git``."""
    for name, content in FILES.items():
        path = os.path.join(os.fsencode(top), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
        os.utime(path, (1_700_000_000 + len(content) % 50, 1_700_000_000 + len(content) % 50))
    (top / ".git").mkdir()
    (top / ".git/HEAD").write_text("needle\n")
    (top / "link.txt").symlink_to("plain.txt")
    (top / "dangling").symlink_to("nowhere")
    (top / "deep/loop").symlink_to("..")
    os.mkfifo(top / "pipe")


def _programs(directory: Path, busybox: bool) -> str:
    """A directory to be the whole PATH; without ``rg`` in any case."""
    directory.mkdir(exist_ok=True)
    for name in APPLETS if busybox else PROGRAMS:
        source = shutil.which("busybox" if busybox else name)
        if source and not (directory / name).exists():
            (directory / name).symlink_to(source)
    return str(directory)


@asynccontextmanager
async def searching(engine: str, directory: Path, *, tmux: bool = False) -> AsyncIterator[ExecutionContext]:
    """A local target where only that engine can search; ``directory`` is for its programs."""
    env = {} if engine in ("rg", "here") else {"PATH": _programs(directory / engine, engine == "busybox")}
    async with connect("local:", env=env, tmux=tmux) as execution:
        forget: Callable[[Capabilities], Capabilities] = _without_programs if engine == "here" else lambda known: known
        execution._backend.capabilities = forget(execution.capabilities)  # what no context offers: a poorer target
        yield execution


def _without_programs(known: Capabilities) -> Capabilities:
    return replace(known, tools=())
