"""The scripts that prepare a target, and the hooks that are typed into nested shells: valid and whole in each shell."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import few_examples
from tests.support.pane_shells import PANE_SHELLS, shell_path

from harness.config import Config
from harness_backends.tmux.pane import nested_shells
from harness_backends.tmux.pane.nested_shells import hook_lines
from harness_backends.tmux.setup import (
    HOOKS,
    NewPane,
    Setup,
    control_argv,
    fish_quote,
    hook_sources,
    pane_files,
    setup_script,
)
from harness_backends.tmux.version import TmuxVersion

ODD = 'a\'b "c" $d `e` \\ !'
POSIX = [["dash"], ["bash"], ["busybox", "sh"], ["mksh"]]
VERSIONS = [TmuxVersion(2, 6), TmuxVersion(3, 0), TmuxVersion(3, 3, "a")]
BUFFER = 1024
"""The longest line that the smallest line editor (busybox) takes, with its newline."""


def setup(root: str = "/state", version: TmuxVersion = VERSIONS[-1], **config: object) -> Setup:
    return Setup(root, "harness", version, Config(env=(("ODD", ODD),), **config))  # type: ignore[arg-type]  # a table


def pane(shell: str = "/bin/bash", cwd: str = "") -> NewPane:
    return NewPane("main", "uid", "nonce", shell, cwd)


def run(argv: list[str], text: str, cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    argv = [shell_path(argv[0]), *argv[1:]]
    return subprocess.run(argv, input=text.encode(), capture_output=True, timeout=30, cwd=cwd)


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("argv", POSIX, ids=" ".join)
@pytest.mark.parametrize("version", VERSIONS, ids=str)
@pytest.mark.parametrize("root", ["/state", f"/home/{ODD}"])
def test_the_setup_script_is_valid_in_any_shell(argv: list[str], version: TmuxVersion, root: str) -> None:
    script = setup_script(setup(root, version), pane(cwd=f"/tmp/{ODD}"))
    check = run([*argv, "-n"], script)
    assert (check.returncode, check.stderr) == (0, b"")


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("argv", POSIX, ids=" ".join)
def test_the_files_of_a_pane_are_private_and_hold_the_settings(argv: list[str], tmp_path: Path) -> None:
    root = tmp_path / ODD
    made = run(argv, "umask 077\n" + pane_files(setup(str(root)), pane("/bin/zsh")))
    assert (made.returncode, made.stdout, made.stderr) == (0, b"", b"")
    files = {path.name: path for path in (root / "panes" / "uid").iterdir() if path.is_file()}
    assert {oct(path.stat().st_mode & 0o777) for path in files.values()} == {"0o600"}
    assert files["nonce"].read_text() == "nonce\n"
    text = '. ./settings; printf "%s\\n" "$hxn" "$hxk" "$hxdir"; printenv ODD; printenv hxn'
    shown = run(argv, text, cwd=files["settings"].parent)
    assert shown.stdout.decode() == f"nonce\nzsh\n{root}/jobs\n{ODD}\n"


@pytest.mark.usefixtures("needs_process")
def test_fish_reads_its_settings(tmp_path: Path) -> None:
    root = tmp_path / ODD
    run(["dash"], pane_files(setup(str(root)), pane("/usr/bin/fish")))
    text = "source ./settings.fish; printf '%s\\n' $hxn $hxk $hxdir $ODD; env | grep -c '^hx'"
    shown = run(["fish", "--no-config"], text, cwd=root / "panes" / "uid")
    assert shown.stdout.decode() == f"nonce\nfish\n{root}/jobs\n{ODD}\n0\n"


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=60)


@pytest.mark.usefixtures("needs_process")
@given(st.lists(TEXT, min_size=1, max_size=20))
@few_examples()
def test_fish_reads_each_quoted_text_as_it_is(texts: list[str]) -> None:
    script = "".join(f"printf '%s\\0' {fish_quote(text)}\n" for text in texts)
    shown = run(["fish", "--no-config"], script)
    assert shown.stdout.decode().split("\0")[:-1] == texts


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("name", [name for name in HOOKS if name not in ("hooks.fish", "fishrc")])
def test_each_hook_file_is_valid_in_the_shells_that_read_it(name: str) -> None:
    source = hook_sources()[name]
    only = {"bashrc": [["bash"]], "zsh": [["zsh"]]}.get(name.partition("/")[0], [*POSIX, ["zsh"]])
    for argv in only:
        check = run([*argv, "-n"], source)
        assert (check.returncode, check.stderr) == (0, b""), argv


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("name", ["hooks.fish", "fishrc"])
def test_each_hook_file_of_fish_is_valid(name: str) -> None:
    assert run(["fish", "--no-config", "--no-execute"], hook_sources()[name]).returncode == 0


@pytest.mark.parametrize("shell", [*PANE_SHELLS, "zsh"])
@pytest.mark.parametrize("tag", [True, False])
def test_the_typed_hooks_fit_the_smallest_line_buffer(shell: str, tag: bool) -> None:
    lines = hook_lines("ash" if shell == "busybox" else shell, "0123456789abcdef0123", tag=tag)
    assert all("\n" not in line and line.startswith(" ") for line in lines)
    assert max(len(line.encode()) for line in lines) < BUFFER
    assert sum(len(line) for line in lines) < 8000


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("shell", PANE_SHELLS)
def test_the_typed_hooks_unpack_to_their_source(shell: str) -> None:
    kind = "ash" if shell == "busybox" else shell
    *lines, last = hook_lines(kind, "n0nce", tag=True)
    unpack = last.partition(" |")[0] if shell == "fish" else last.split("; ")[1].replace("eval", "printf '%s\\n'")
    argv = ["busybox", "sh"] if shell == "busybox" else [shell]
    shown = run(argv, "\n".join([*lines, unpack]))
    source = nested_shells._minify("hooks.fish" if shell == "fish" else "hooks.sh")
    assert shown.stderr == b""
    assert shown.stdout.decode().endswith(source)
    assert "n0nce" in shown.stdout.decode().removesuffix(source)


@pytest.mark.usefixtures("needs_root")
def test_hook_files_that_found_no_space_are_neither_used_nor_left_for_good(tmp_path: Path) -> None:
    def prepare() -> str:
        script = setup_script(replace(setup(str(tmp_path / "full")), create=False), pane())
        return run(["dash"], script.replace("-L harness ", f"-L hx-none-{os.getpid()} ")).stdout.decode()

    (tmp_path / "full").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k,mode=700", "none", str(tmp_path / "full")], check=True)
    try:
        assert prepare().startswith("failed=no space for its files in ")
        subprocess.run(["mount", "-o", "remount,size=1m", str(tmp_path / "full")], check=True)
        assert prepare() == "missing=\n"
        (folder,) = (tmp_path / "full" / "tmux").iterdir()
        assert {name: (folder / name).read_text() for name in HOOKS} == hook_sources()
    finally:
        subprocess.run(["umount", "-l", str(tmp_path / "full")], check=True)


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("argv", POSIX, ids=" ".join)
def test_a_control_client_that_is_killed_as_it_starts_leaves_nobody_with_the_turn(
    argv: list[str], tmp_path: Path
) -> None:
    """While the relay waits for its turn, its client is killed: it must not go on waiting with the turn."""
    (tmp_path / "run").mkdir()
    program = [shell_path(argv[0]), *argv[1:], *control_argv(setup(str(tmp_path), tmux_socket="hx-none"))[1:]]
    turn = tmp_path / "turn"
    turn.touch()
    with subprocess.Popen(["flock", str(turn), "sh", "-c", "echo held; read x"], stdin=-1, stdout=-1) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdout.readline()
        with subprocess.Popen(program, stdin=-1, stdout=-1, stderr=-3) as client:
            assert client.stdin is not None
            assert client.stdout is not None
            client.stdout.readline()  # its process id: the relay is on its way
            client.kill()
            client.stdin.close()
        holder.stdin.close()
    taken = subprocess.run(["flock", "-w", "20", str(turn), "true"], timeout=30, check=False)
    assert taken.returncode == 0
    assert list((tmp_path / "run").iterdir()) == []
