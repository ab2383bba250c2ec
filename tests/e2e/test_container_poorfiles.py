"""Files of images that have nothing but a shell, by each way into a container, and over SSH."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Awaitable
from pathlib import Path

import anyio
import pytest
from tests.support.contained import WAYS, MakeWay, Way, make_way
from tests.support.engines import Container, container
from tests.support.sshd import MakeSshd

from harness import ExecutionContext, connect
from harness.copying import Copier, CopyObserver, CopyOptions, CopySide
from harness.errors import FileError, HarnessError, UnsupportedOperation
from harness_backends.container import archive_files

__all__ = ["make_way"]

LARGE = os.urandom(3 << 20)
ODD = "new\nline é -"
NO_UTF8 = "\udcff"


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, make_way: MakeWay) -> Way:
    return make_way(request.param)


def fill(one: Container) -> None:
    """Put files into a container, the engine's own way, as the image has no program for it."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as tar:

        def add(name: str, kind: bytes, content: bytes = b"", mode: int = 0o644, link: str = "") -> None:
            entry = tarfile.TarInfo(f"d{name}")
            entry.type, entry.mode, entry.size, entry.linkname = kind, mode, len(content), link
            entry.uid, entry.gid, entry.mtime = 1234, 5678, 1_600_000_000
            tar.addfile(entry, io.BytesIO(content))

        for name in ("", "/sub"):
            add(name, tarfile.DIRTYPE, mode=0o755)
        for name, content in (
            ("/large", LARGE),
            ("/empty", b""),
            ("/sub/.hid", b"h"),
            (f"/{ODD}", b"\0odd\r\n"),
            (f"/sub/{NO_UTF8}", b"8"),
        ):
            add(name, tarfile.REGTYPE, content, 0o640 if name == "/large" else 0o644)
        add("/secret", tarfile.REGTYPE, b"secret", 0o600)
        add("/special", tarfile.REGTYPE, b"", 0o4755)
        add("/pipe", tarfile.FIFOTYPE)
        links = {"link": "large", "two": "./sub/../link", "dir": "/d/sub", "dangling": "none", "loop": "loop"}
        for name, target in (links | {"memory": "/memory/f"}).items():
            add(f"/{name}", tarfile.SYMTYPE, link=target, mode=0o777)
    keep = {"docker": (), "podman": ("--archive=false",)}[one.engine.kind]
    one.engine.cli("cp", *keep, "-", f"{one.name}:/", stdin=data.getvalue())


async def check_reads(ctx: ExecutionContext, here: Path) -> None:
    version = f"sha256:{hashlib.sha256(LARGE).hexdigest()}"
    for path in ("/d/large", "/d/link", "/d/two", "d/dir/../large"):
        whole = await ctx.read_file(path)
        assert (whole.data == LARGE, whole.size, whole.mode, whole.version) == (True, len(LARGE), 0o640, version), path
    part = await ctx._backend.files.read("/d/large", 1 << 20, 5)
    assert (part.data, part.size, part.version) == (LARGE[1 << 20 : (1 << 20) + 5], len(LARGE), version)
    assert (await ctx._backend.files.read("/d/large", len(LARGE) - 2, 9)).data == LARGE[-2:]
    assert (await ctx._backend.files.read("/d/large", 9 << 20)).data == b""
    assert (await ctx.read_file("/d/empty")).data == b""
    odd = await ctx.read_file(f"/d/{ODD}")
    assert (odd.data, odd.path) == (b"\0odd\r\n", f"/d/{ODD}")
    assert await ctx.download("/d/two", str(here / "copy")) == len(LARGE)
    assert (here / "copy").read_bytes() == LARGE
    assert stat.S_IMODE((here / "copy").stat().st_mode) == 0o640


async def check_copies(ctx: ExecutionContext, here: Path) -> None:
    """What harness cp copies from it, twice."""
    here.mkdir()
    sources = [(CopySide(ctx.files, "box:"), ["/d/large", "/d/sub"])]
    async with connect("local:") as local:
        for status in ("copied", "unchanged"):
            options = CopyOptions(recursive=True)
            summary = await Copier(sources, CopySide(local.files), str(here), options, CopyObserver()).run()
            unnamed = int(ctx.target.last.scheme == "docker")  # its archives hold names in UTF-8 only
            assert (summary.failed, summary.counts[status]) == (unnamed, 3 - unnamed), summary.problems
    assert ((here / "large").read_bytes(), (here / "sub/.hid").read_bytes()) == (LARGE, b"h")


async def check_root(ctx: ExecutionContext) -> None:
    root = await ctx.stat("/")
    assert (root.path, root.type) == ("/", "dir")


async def check_looks(ctx: ExecutionContext) -> None:
    found = await ctx.stat("/d/two")
    assert (found.type, found.size, found.mode, found.mtime) == ("file", len(LARGE), 0o640, 1_600_000_000)
    assert (found.uid, found.gid) == ((1234, 5678) if ctx.target.last.scheme == "docker" else (-1, -1))
    assert (await ctx.stat("/d/special")).mode == 0o4755
    directory = await ctx.stat("/d/dir")
    assert (directory.path, directory.type, directory.size, directory.mode) == ("/d/sub", "dir", -1, 0o755)
    assert (await ctx.stat("/d/pipe")).type == "other"
    kinds = {entry.name: entry.type for entry in await ctx.list_dir("/d")}
    assert kinds == dict.fromkeys(("dangling", "dir", "link", "loop", "memory", "two"), "link") | {
        "sub": "dir",
        "pipe": "other",
    } | dict.fromkeys(("large", "empty", "secret", "special", ODD), "file")
    assert {entry.size for entry in await ctx.list_dir("/d")} == {-1}
    assert [entry.name for entry in await ctx.walk("/d") if "/" in entry.name] == ["sub/.hid", f"sub/{NO_UTF8}"]
    assert await ctx.glob("*/.h*", root="/d") == ["dir/.hid", "sub/.hid"]
    with pytest.raises(FileError, match="more than 3 entries"):
        await ctx.walk("/", max_entries=3)


async def failure(asked: Awaitable[object]) -> str:
    """The kind and the words of an error, without the target and the hint."""
    with pytest.raises(HarnessError) as caught:
        await asked
    return f"{type(caught.value).__name__}: {caught.value.message}"


async def check_errors(ctx: ExecutionContext, here: Path) -> None:
    here.mkdir()
    for path, said in {
        "/d/none": "FileNotFound: /d/none: no such file or directory",
        "/d/dangling": "FileNotFound: /d/dangling: no such file or directory",
        "/d/sub": "IsADirectory: /d/sub: is a directory",
        "/d/dir/": "IsADirectory: /d/dir/: is a directory",
        "/d/large/x": "NotADirectory: /d/large/x: a part of the path is not a directory",
        "/d/link/": "NotADirectory: /d/link/: a part of the path is not a directory",
        "/d/pipe": "FileError: /d/pipe: is a pipe, a socket or a device, not a file",
        "/d/loop": "FileError: /d/loop: is a link to itself",
    }.items():
        assert await failure(ctx.read_file(path)) == said
        assert await failure(ctx.download(path, str(here / "no"))) == said
    if ctx.target.last.scheme == "docker":  # its archives hold names in UTF-8 only
        assert "the engine does not show it" in await failure(ctx.read_file(f"/d/sub/{NO_UTF8}"))
    else:
        assert (await ctx.read_file(f"/d/sub/{NO_UTF8}")).text == "8"
    assert (await failure(ctx.read_file("/proc/version"))).startswith("FileError: /proc/version: cannot read the file")
    assert list(here.iterdir()) == []
    for refused in (
        ctx.write_file("/d/empty", "x"),
        ctx.mkdir("/d/new"),
        ctx.remove("/d/empty"),
        ctx.rename("/d/empty", "/d/new"),
        ctx.upload(__file__, "/d/new"),
    ):
        with pytest.raises(UnsupportedOperation, match=r"cannot be changed safely.* cp"):
            await refused
    assert (await ctx.run_shell("[ -e /d/new ] || [ -s /d/empty ]")).exit_code == 1


async def check_mounts(ctx: ExecutionContext, one: Container) -> None:
    """A file in memory is read where the engine shows it, and never taken for the one below the mount."""
    assert (await ctx.run_shell("echo seen >/memory/f; echo other >/volume/f")).ok
    assert (await ctx.read_file("/volume/f")).text == "other\n"
    for path in ("/memory/f", "/d/memory"):
        if one.engine.kind == "docker":
            assert "on the mount /memory, which the engine does not show" in await failure(ctx.read_file(path))
        else:
            assert (await ctx.read_file(path)).text == "seen\n"


async def test_files_are_read_exactly_where_the_image_has_a_shell_alone(way: Way, tmp_path: Path) -> None:
    options = ("--tmpfs", "/memory", "--volume", f"{tmp_path}/v:/volume")
    (tmp_path / "v").mkdir()
    with container(way.engine, "only-sh", options=options) as one:
        fill(one)
        async with way.connect(one) as ctx:
            with anyio.fail_after(120):
                await check_reads(ctx, tmp_path)
                await check_root(ctx)
                await check_copies(ctx, tmp_path / "copies")
                await check_looks(ctx)
                await check_errors(ctx, tmp_path / "downloads")
                await check_mounts(ctx, one)
                await check_links(ctx, one)
                one.do("kill")
                with pytest.raises(HarnessError, match=r"stopped|lost|ended|closed"):
                    await ctx.read_file("/d/large")
                with pytest.raises(HarnessError, match="stopped"):
                    await ctx.read_file("/d/large")


async def check_links(ctx: ExecutionContext, one: Container) -> None:
    """Docker shows links themselves; Podman what they lead to, and then a link's own properties are not known."""
    if one.engine.kind == "docker":
        found = await ctx.stat("/d/two", follow=False)
        assert (found.type, found.target, found.size, found.path) == ("link", "./sub/../link", 13, "/d/two")
        assert (await ctx.read_file("/d/two")).path == "/d/large"
    else:
        assert "shows only its target" in await failure(ctx.stat("/d/two", follow=False))


async def test_what_a_user_may_not_read_the_engine_does_not_read_for_it(
    way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_files, "READ_LIMIT", 1 << 20)
    with container(way.engine, "only-sh", options=("--user", "4242")) as one:
        fill(one)
        async with way.connect(one) as ctx:
            for path in ("/d/secret", "/d/large", "/d/two"):
                assert await failure(ctx.read_file(path)) == f"PermissionDenied: {path}: permission denied"
                assert "PermissionDenied" in await failure(ctx.download(path, str(tmp_path / "no")))
            assert (await ctx.stat("/d/secret")).size == 6
        async with way.connect(one.target.replace("://", "://1234@")) as ctx:
            assert (await ctx.read_file("/d/secret")).text == "secret"
            assert f"has {len(LARGE)} bytes; at most {1 << 20} can be read" in await failure(ctx.read_file("/d/large"))
            assert (await ctx._backend.files.read("/d/large", 2 << 20)).data == LARGE[2 << 20 :]
            assert await ctx.download("/d/large", str(tmp_path / "copy")) == len(LARGE)


@pytest.mark.parametrize("name", ["docker", "podman-program"])
async def test_files_are_read_from_a_container_of_another_machine(
    name: str, make_way: MakeWay, make_sshd: MakeSshd, tmp_path: Path
) -> None:
    way = make_way(name)
    words = {"HOME": str(tmp_path), **way.engine.environ(api=False)}
    host = make_sshd("Match All", "  SetEnv " + " ".join(f"{key}={value}" for key, value in words.items()))
    with container(way.engine, "only-sh") as one:
        fill(one)
        async with connect(f"{host.target}+{one.target}", config=host.config()) as ctx:
            with anyio.fail_after(60):
                await check_reads(ctx, tmp_path)
                await check_root(ctx)
