"""Files where there is nothing but a shell: what the shell tells equals what the tools of a full target tell."""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.file_targets import BASH, DASH, Flavour, FlavouredTransport

from harness.backend import Capabilities
from harness.errors import FileError, HarnessError
from harness_backends.container.archive_files import builtin_library, find_script, parse_place
from harness_backends.container.information import hidden_by
from harness_backends.container.tar_entry import EntryReader, TarError
from harness_backends.posix.files.file_calls import FileCalls
from harness_backends.posix.files.files import PosixFiles
from harness_backends.posix.files.search import Search, glob_paths, list_entries, search
from harness_backends.posix.persistent_shell import open_held_shell

NAMES = (
    ".hidden",
    "-n",
    "a b",
    "new\nline",
    "tab\t",
    "we*ird[",
    "back\\slash",
    "(",
    "!",
    "...",
    ".-",
    "é",
    "\udcff",
    "$(x)",
)
"""What patterns, options and words of a shell are made of."""


PLACES = (
    "tree|tree/sub/|tree/to-dir|tree/empty|tree/we?rd*|tree/-n|tree/closed|~/tree/up|tree/none|tree/-n/x|tree/loop|"
    "tree/dangling|tree/pipe|~nobody-there|tree/sub/."
)
PATTERNS = (
    "*|tree/*|tree/.*|**|tree/**|tree/**/.git/*|tree/*/|tree/we[?]rd*/*|**/-n|tree/[!a]*|tree/to-dir/*|tree/none/*|"
    "tree/-n|tree/none|tree/*/*/*|tree/back\\*"
)
FILES = (
    "to-file|to-dir|twice|dangling|loop|through|shut|closed/in|secret|-n/|to-file/|to-dir/|to-dir/.|sub/..|none/none|"
    "-n/x|pipe|absolute"
)


def make_tree(home: Path) -> None:
    tree = home / "tree"
    for directory in (tree, tree / "sub", tree / "sub" / ".git", tree / "we?rd*"):
        directory.mkdir()
        for name in NAMES:
            (directory / name).write_text("x")
    (tree / "empty").mkdir()
    os.mkfifo(tree / "pipe")
    links = {"to-file": "-n", "to-dir": "sub", "twice": "to-file", "dangling": "none", "loop": "loop", "up": ".."}
    for name, target in (links | {"absolute": str(tree / "sub"), "through": "to-dir/-n", "shut": "closed/in"}).items():
        (tree / name).symlink_to(target)
    (tree / "closed").mkdir(mode=0)
    (tree / "secret").touch(mode=0)


@dataclass
class Both:
    """The same directory, with a shell alone and with all tools."""

    poor: FileCalls
    full: PosixFiles
    home: Path


@asynccontextmanager
async def both(shell: Flavour) -> AsyncIterator[Both]:
    """As a user who may not do everything."""
    with tempfile.TemporaryDirectory(prefix="harness-poor-") as name:
        user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups") if os.getuid() == 0 else ()
        home = Path(name)
        home.chmod(0o755)
        make_tree(home)
        thin = FlavouredTransport(replace(shell, prefix=user), home, "/nowhere")
        rich = FlavouredTransport(replace(DASH, prefix=user), home, "/usr/bin:/bin")
        async with open_held_shell(thin) as one, open_held_shell(rich) as other:
            full = PosixFiles(other, rich, Capabilities(home=name, uid=65534), lambda: rich)
            yield Both(FileCalls(one, thin, "/", builtin_library("/")), full, home)


async def outcome(asked: Awaitable[object]) -> object:
    try:
        return await asked
    except (HarnessError, ValueError) as error:
        return type(error), str(error)


async def listed(asked: Awaitable[object]) -> object:
    """An answer but for the sizes, which a shell does not know."""
    found = await outcome(asked)
    return [(entry.name, entry.type) for entry in found] if isinstance(found, list) else found


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("shell", [DASH, BASH], ids=lambda shell: shell.name)
async def test_a_shell_alone_finds_what_tools_find(shell: Flavour) -> None:
    async with both(shell) as two:
        for place in PLACES.split("|"):
            assert await listed(list_entries(two.poor, place)) == await listed(two.full.list_dir(place)), place
            walked = await listed(search(two.poor, Search(place, "search"), 500))
            assert walked == await listed(two.full.walk(place, max_entries=500)), place
        for pattern in PATTERNS.split("|"):
            found = await outcome(glob_paths(two.poor, pattern, "~", 500))
            assert found == await outcome(two.full.glob(pattern, root="~", max_entries=500)), pattern
        with pytest.raises(FileError, match="more than 10 entries"):
            await search(two.poor, Search("tree", "search"), 10)


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("shell", [DASH, BASH], ids=lambda shell: shell.name)
async def test_a_shell_alone_says_of_one_file_what_tools_say(shell: Flavour) -> None:
    async with both(shell) as two:
        for name in (
            *(f"tree/{name}" for name in (*NAMES, *FILES.split("|"))),
            "~",
            "/",
            "//",
            ".",
            "",
            "nul\0",
            "~nobody-there/x",
        ):
            for follow in (True, False):
                poor = await outcome(find(two.poor, name, follow=follow))
                full = await outcome(two.full.stat(name, follow=follow))
                if isinstance(poor, tuple) or isinstance(full, tuple):
                    assert poor == full, (name, follow)
                    continue
                kind = poor.type if not follow or poor.type != "link" else poor.leads_to
                assert kind == full.type, (name, follow)
                assert poor.type == "link" or poor.real == full.path, (name, follow)
        if os.getuid() == 0:
            assert not (await find(two.poor, "tree/secret", follow=True)).readable
        assert any(" / " in line for line in (await find(two.poor, "tree", follow=True)).mounts)


async def find(calls: FileCalls, path: str, *, follow: bool):  # type: ignore[no-untyped-def]  # a Place, or an outcome
    return parse_place((await calls.run(path, find_script(path, follow=follow))).text)


@pytest.mark.usefixtures("needs_process")
async def test_what_is_deeper_than_a_path_may_be_long_and_more_than_one_answer_holds_is_found() -> None:
    async with both(DASH) as two:
        here = os.open(two.home / "tree" / "empty", os.O_RDONLY)
        for _ in range(30):  # 6 kB of path
            os.mkdir("d" * 200, dir_fd=here)
            deeper = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = deeper
        for number in range(3000):
            os.close(os.open(f"{'f' * 90}{number}", os.O_CREAT, dir_fd=here))
        os.close(here)
        found = await search(two.poor, Search("tree/empty", "search"), 100_000)
        assert len(found) == 3030
        assert {len(entry.name.split("/")) for entry in found if entry.type == "file"} == {31}


# -- archives


def archive(name: str, content: bytes, **changes: object) -> bytes:
    """A tar archive with one file, as Go writes them: with records, when something does not fit."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = len(content), 0o4755, 12
        for key, value in changes.items():
            setattr(info, key, value)
        tar.addfile(info, io.BytesIO(content))
    return data.getvalue()


@given(st.binary(max_size=3000), st.integers(1, 1500), st.sampled_from(["f", "é" * 300]), st.floats(0, 2**31))
def test_an_entry_is_read_however_it_comes(content: bytes, step: int, name: str, mtime: float) -> None:
    data = archive(name, content, mtime=mtime, uid=3_000_000)
    reader, taken = EntryReader(), b""
    for start in range(0, len(data), step):
        taken += reader.feed(data[start : start + step])
    assert reader.entry is not None
    assert reader.complete
    assert taken == content
    assert (reader.entry.type, reader.entry.mode, reader.entry.uid) == ("file", 0o4755, 3_000_000)
    assert reader.entry.name == name
    assert reader.entry.mtime == pytest.approx(mtime)


def test_links_and_large_sizes_are_read_and_an_empty_archive_is_none() -> None:
    reader = EntryReader()
    reader.feed(archive("l", b"", type=tarfile.SYMTYPE, linkname="../" * 100 + "\udcff"))
    assert reader.entry is not None
    assert (reader.entry.type, reader.entry.link, reader.complete) == ("link", "../" * 100 + "\udcff", True)
    info = tarfile.TarInfo("large")
    info.size = 20 << 30
    for style in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        reader = EntryReader()
        reader.feed(info.tobuf(style))
        assert reader.entry is not None
        assert (reader.entry.size, reader.complete) == (20 << 30, False)
    reader = EntryReader()
    assert reader.feed(bytes(1024)) == b""
    assert (reader.entry, reader.empty, reader.complete) == (None, True, True)


@given(st.binary(min_size=512, max_size=2000))
def test_what_is_no_archive_is_refused_or_needs_more(data: bytes) -> None:
    reader = EntryReader()
    try:
        reader.feed(data)
    except TarError:
        return
    assert reader.empty or reader.entry is not None or len(data) < 512


@pytest.mark.parametrize("body", [b"9 size=x\n", b"99 size=1\n", b"x", b"11 size=-5x\n", b"10 size=-5\n", b"0 a=b\n"])
def test_records_that_lie_are_refused(body: bytes) -> None:
    record = tarfile.TarInfo("r")
    record.type, record.size = tarfile.XHDTYPE, len(body)
    padded = body + bytes(-len(body) % 512)
    with pytest.raises(TarError):
        EntryReader().feed(record.tobuf(tarfile.USTAR_FORMAT) + padded + tarfile.TarInfo("f").tobuf())


def test_records_beyond_reason_are_refused() -> None:
    record = tarfile.TarInfo("r")
    record.type, record.size = tarfile.XHDTYPE, 1 << 30
    with pytest.raises(TarError):
        EntryReader().feed(record.tobuf(tarfile.GNU_FORMAT))


# -- mounts

MOUNTS = """\
119 65 0:51 / / rw - overlay overlay rw
120 119 0:54 / /proc rw - proc proc rw
136 119 254:0 /v /vol rw - ext4 /dev/vda rw
137 119 0:60 / /scratch rw - tmpfs tmpfs rw
138 119 254:0 /x /etc/hosts rw - ext4 /dev/vda rw
139 136 0:61 / /vol/inner rw - tmpfs tmpfs rw
140 137 254:0 /v2 /scratch/vol rw - ext4 /dev/vda rw
141 119 254:0 /v3 /with\\040space rw - ext4 /dev/vda rw
142 119 254:0 /v4 /twice rw - ext4 /dev/vda rw
143 142 0:62 / /twice rw - tmpfs tmpfs rw
144 119 254:0 /v5 /a/b rw - ext4 /dev/vda rw
145 119 0:63 / /a rw - tmpfs tmpfs rw""".splitlines()
VOLUMES = ("/vol/", "/scratch/vol", "/with space", "/twice", "/a/b", "/gone")


@pytest.mark.parametrize(
    ("path", "point"),
    [
        ("/", None),
        ("/bin/sh", None),
        ("/volume", None),
        ("/vol", None),
        ("/vol/f", None),
        ("/vol/inner/f", "/vol/inner"),
        ("/scratch/f", "/scratch"),
        ("/scratch/vol/f", None),
        ("/with space/f", None),
        ("/etc/hosts", None),
        ("/proc/1", "/proc"),
        ("/twice/f", "/"),
        ("/a/b/f", "/a"),
        ("/gone/f", "/"),
    ],
)
def test_only_what_the_engine_has_mounted_is_taken_from_it(path: str, point: str | None) -> None:
    assert hidden_by(MOUNTS, path, VOLUMES) == point


def test_unknown_mounts_hide_everything() -> None:
    assert hidden_by([], "/bin/sh", ()) == "/"
    assert hidden_by(["", "x", *MOUNTS[1:]], "/bin/sh", ()) == "/"
