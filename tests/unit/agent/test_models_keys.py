"""Where keys come from: read at use, refused when others can read them, and shown nowhere."""

from __future__ import annotations

import base64
import os
import signal
import sys
import time
from pathlib import Path

import anyio
import anyio.to_thread
import keyring
import pytest
from keyring.backend import KeyringBackend

from harness.agent.models import (
    CommandKey,
    EnvironmentKey,
    FileKey,
    KeyringKey,
    KeySource,
    hide_keys,
    known_keys,
    read_key,
)
from harness.agent.models.keys import check_file
from harness.errors import ConfigError
from harness.toolkit.redaction.redactor import PatternRedactor
from harness.toolkit.redaction.stream import StreamRedactor

KEY = "sk-test-0123456789-keys"


def key_file(path: Path, text: str = KEY, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


async def refusal(source: KeySource, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        await read_key(source, environ or {})
    return str(caught.value)


@pytest.mark.usefixtures("needs_process")
async def test_a_key_is_read_from_the_environment_a_file_and_a_command(tmp_path: Path) -> None:
    path = key_file(tmp_path / "key", f"\n{KEY}\r\n")
    command = CommandKey((sys.executable, "-c", f"print({KEY!r})"))
    for source in (EnvironmentKey("K"), FileKey(str(path)), command):
        assert await read_key(source, {"K": f" {KEY}\n"}) == KEY


async def test_a_key_file_may_be_named_from_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    key_file(tmp_path / "key")
    assert await read_key(FileKey("~/key")) == KEY


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o602, 0o777])
async def test_a_key_file_that_others_can_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = key_file(tmp_path / "key", mode=mode)
    assert await refusal(FileKey(str(path))) == f"others may read or write the key file {path} (chmod 600 {path})"


async def test_what_is_no_key_file_is_refused_and_nothing_waits_for_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    key_file(tmp_path / "large", "x" * (64 << 10) + "x")
    (tmp_path / "bytes").chmod(0o600)
    assert "not a regular file" in await refusal(FileKey(str(tmp_path / "pipe")))
    assert "is a directory" in await refusal(FileKey(str(tmp_path)))
    assert "no such file" in await refusal(FileKey(str(tmp_path / "none")))
    assert "not valid UTF-8" in await refusal(FileKey(str(tmp_path / "bytes")))
    assert "the key is larger than 64 KiB" in await refusal(FileKey(str(tmp_path / "large")))
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "gone").symlink_to(tmp_path / "none")
    (tmp_path / "others").symlink_to(key_file(tmp_path / "open", mode=0o644))
    (tmp_path / "own").symlink_to(key_file(tmp_path / "kept"))
    assert "symbolic links" in await refusal(FileKey(str(tmp_path / "loop")))
    assert "no such file" in await refusal(FileKey(str(tmp_path / "gone")))
    assert "others may read" in await refusal(FileKey(str(tmp_path / "others")))
    assert await read_key(FileKey(str(tmp_path / "own"))) == KEY
    assert "not a regular file" in await refusal(FileKey("/dev/zero"))
    assert "null byte" in await refusal(FileKey("a\0b"))
    assert "home directory" in await refusal(FileKey("~no-such-user-there/key"))


def test_a_key_file_of_another_user_is_refused(tmp_path: Path) -> None:
    info = os.stat(key_file(tmp_path / "key"))
    other = os.stat_result((*info[:4], os.geteuid() + 1, *info[5:]))
    with pytest.raises(ConfigError, match="belongs to another user"):
        check_file(tmp_path / "key", other)


@pytest.mark.parametrize("text", ["", " \n", f"{KEY} {KEY}", f"{KEY}\n{KEY}", "sk-ключ-0123456789", f"{KEY}\x07"])
async def test_what_is_not_one_word_is_no_key_and_is_not_shown(tmp_path: Path, text: str) -> None:
    said = await refusal(FileKey(str(key_file(tmp_path / "key", text))))
    assert "contains no key" in said or "contains no valid key" in said
    assert KEY not in said
    assert "ключ" not in said


async def test_a_variable_that_is_not_set_is_named() -> None:
    assert (await refusal(EnvironmentKey("NONE"))).startswith("the variable NONE is not set")


@pytest.mark.usefixtures("needs_process")
async def test_a_command_gets_its_words_as_they_are_and_no_input() -> None:
    script = "import sys; sys.stdin.read(); print('-'.join(sys.argv[1:]))"
    assert await read_key(CommandKey((sys.executable, "-c", script, "$HOME", "*;words-as-they-are"))) == (
        "$HOME-*;words-as-they-are"
    )


@pytest.mark.usefixtures("needs_process")
async def test_a_command_that_fails_says_why_without_what_it_printed() -> None:
    fails = f"import sys; print({KEY!r}); sys.stderr.write('first\\nlocked: token=ghp_{'a1' * 18}\\n'); sys.exit(3)"
    said = await refusal(CommandKey((sys.executable, "-c", fails)))
    assert "failed with exit code 3: locked: " in said
    assert KEY not in said
    assert "ghp_" not in said
    assert "no such file" in await refusal(CommandKey(("/no/such/program",)))


@pytest.mark.usefixtures("needs_process")
async def test_a_command_that_prints_nothing_in_time_is_ended() -> None:
    started = time.monotonic()
    sleeps = CommandKey((sys.executable, "-c", "import time; time.sleep(600)"), timeout=0.5)
    assert "printed no key within 0.5 s and was killed" in await refusal(sleeps)
    assert time.monotonic() - started < 300


@pytest.mark.usefixtures("needs_process")
async def test_a_command_that_prints_without_end_fills_no_memory() -> None:
    floods = "import sys\nfor _ in range(200): sys.stdout.write('x' * 65536)"
    assert "larger than 64 KiB" in await refusal(CommandKey((sys.executable, "-c", floods)))


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize(
    ("program", "said", "hidden"),
    [
        (f"import sys; sys.stderr.write({KEY!r})", "contains no key", KEY),
        (f"print({KEY!r}); print({KEY!r})", "contains no valid key", KEY),
        (f"print({KEY!r}, 'expires tomorrow')", "contains no valid key", KEY),
        (f"import sys; sys.stdout.buffer.write(b'\\xff\\x00{KEY}')", "not valid UTF-8", KEY),
        (f"print('\\x00' + {KEY!r})", "contains no valid key", KEY),
        (f"import sys; sys.stderr.write('bad token: {KEY} no'); print({KEY!r}); sys.exit(1)", "bad token:", KEY),
        ("import sys; sys.stderr.write('wrong: s9XkQ2mZp71'); sys.exit(1)", "exit code 1: wrong: [key]", "s9XkQ2mZp71"),
        ("import sys; sys.stderr.write('wrong: a-b-c'); print('a-b-c'); sys.exit(1)", "wrong: [key]", "a-b-c"),
        ("import sys; sys.stderr.write('\\x1b[2J\\x07locked\\r'); sys.exit(1)", "locked", "\x1b"),
        ("open('/dev/tty').read()", "failed with exit code 1: ", KEY),
        ("import sys; sys.exit(0 if sys.stdin.read() else 4)", "failed with exit code 4", KEY),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "failed with exit code -9", KEY),
    ],
)
async def test_what_a_command_does_wrong_is_said_in_one_line_without_what_may_be_a_key(
    program: str, said: str, hidden: str
) -> None:
    with anyio.fail_after(100):
        text = await refusal(CommandKey((sys.executable, "-c", program), timeout=90))
    assert said in text
    assert hidden not in text
    assert "\n" not in text


@pytest.mark.usefixtures("needs_process")
async def test_a_command_that_never_stops_printing_is_ended_with_its_children(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "life")
    endless = f"exec 3<>{tmp_path / 'life'}; yes no key >&1 & yes no key"
    with anyio.fail_after(100):
        assert "larger than 64 KiB" in await refusal(CommandKey(("sh", "-c", endless), timeout=90))
        floods = "import sys\nwhile True: sys.stderr.write('x' * 65536)"
        assert "printed no key within 1 s and was killed" in await refusal(
            CommandKey((sys.executable, "-c", floods), timeout=1)
        )
        life = os.open(tmp_path / "life", os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(life, True)  # the end comes when nobody holds the pipe any more
        assert await anyio.to_thread.run_sync(os.read, life, 1, abandon_on_cancel=True) == b""
        os.close(life)


@pytest.mark.usefixtures("needs_process")
async def test_a_command_that_leaves_an_agent_behind_is_not_waited_for_beyond_its_end(tmp_path: Path) -> None:
    leaves = (
        "import os, time\n"
        f"print({KEY!r}, flush=True)\n"
        "if os.fork() == 0:\n"
        f"    with open({str(tmp_path / 'agent')!r}, 'w') as agent: agent.write(str(os.getpid()))\n"
        "    time.sleep(600)\n"
    )
    os.mkfifo(tmp_path / "agent")
    started = time.monotonic()
    assert await read_key(CommandKey((sys.executable, "-c", leaves), timeout=500)) == KEY
    assert time.monotonic() - started < 400
    with anyio.fail_after(100):
        pid = await anyio.to_thread.run_sync((tmp_path / "agent").read_text, abandon_on_cancel=True)
    os.kill(int(pid), signal.SIGKILL)


@pytest.mark.usefixtures("needs_process")
async def test_a_cancel_ends_the_command_and_what_it_started(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "life")
    starts = f"import subprocess; subprocess.run(['sh', '-c', 'exec 3>{tmp_path / 'life'}; echo x >&3; sleep 600'])"
    with anyio.fail_after(100):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read_key, CommandKey((sys.executable, "-c", starts), timeout=500))
            life = await anyio.to_thread.run_sync(open, tmp_path / "life", abandon_on_cancel=True)
            with life:
                assert await anyio.to_thread.run_sync(life.readline, abandon_on_cancel=True) == "x\n"
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    assert await anyio.to_thread.run_sync(life.read) == "", "nobody holds the pipe any more"


class _Entries(KeyringBackend):
    priority = 1

    def get_password(self, service: str, username: str) -> str | None:
        if service == "broken":
            raise RuntimeError("the keyring is locked")
        return KEY if (service, username) == ("harness", "anthropic") else None

    def set_password(self, service: str, username: str, password: str) -> None:
        raise NotImplementedError

    def delete_password(self, service: str, username: str) -> None:
        raise NotImplementedError


async def test_a_key_comes_from_the_keyring() -> None:
    keyring.set_keyring(_Entries())  # no other test asks a keyring, and to look for the real one may take long
    assert await read_key(KeyringKey("harness", "anthropic")) == KEY
    assert "contains no key" in await refusal(KeyringKey("harness", "openai"))
    assert "the keyring failed: RuntimeError: the keyring is locked" in await refusal(KeyringKey("broken", "x"))


async def test_what_was_read_once_is_taken_out_of_texts() -> None:
    await read_key(EnvironmentKey("K"), {"K": KEY})
    await read_key(EnvironmentKey("K"), {"K": f"{KEY}-longer"})
    assert {KEY, f"{KEY}-longer"} <= set(known_keys())
    assert hide_keys(f"Bearer {KEY}-longer, {KEY}!") == "Bearer [key], [key]!"


async def test_a_key_that_was_read_is_taken_out_of_what_models_and_people_are_shown() -> None:
    redactor = PatternRedactor()
    stream = StreamRedactor(redactor)
    key = "plain.words.are.a.key-77"
    before = redactor.text(f"it is {key}")
    await read_key(EnvironmentKey("K"), {"K": key})
    assert key in before
    assert redactor.text(f"it is {key}; twice {key}") == "it is [redacted]; twice [redacted]"
    assert key not in "".join([*(stream.feed(letter) for letter in f"it is {key} indeed"), stream.flush()])
    assert base64.b64encode(key.encode()).decode() not in redactor.text(base64.b64encode(key.encode()).decode())


async def test_a_word_that_local_servers_take_for_a_key_stays_in_texts() -> None:
    for word in ("ollama", "none", "secretsecretsecret"):
        await read_key(EnvironmentKey("K"), {"K": word})
        assert hide_keys(f"{word} is up") == PatternRedactor().text(f"{word} is up") == f"{word} is up"


async def test_no_source_shows_a_key(tmp_path: Path) -> None:
    path = key_file(tmp_path / "key")
    sources = [FileKey(str(path)), EnvironmentKey("K"), CommandKey(("pass", "show", "x")), KeyringKey("a", "b")]
    assert [str(source) for source in sources] == [
        f"the file {path}",
        "the variable K",
        "the command pass",
        "the keyring entry a of b",
    ]
