"""Make the media of ``docs/agent.md``: the demo's transcript, and a recording of a conversation at the prompt.

The host ``web1`` is an embedded SSH server on this machine, and the model a server that plays a script; the program,
ssh, tmux, the shell, the approvals and the files are the real ones.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pexpect
from readme_media import HOST, _environment, _outer_terminal, _picture, _screen_with, _tmux, _web1, shape

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.model_server import Answer, Call, Reasoning, Text, model_server, say  # noqa: E402  # not installed

MEDIA = ROOT / "docs" / "media"
TRANSCRIPT, RECORDING, PICTURE = MEDIA / "agent-demo.txt", MEDIA / "agent.cast", MEDIA / "agent.svg"
WIDTH, HEIGHT = 92, 30
TIMEOUT = 60
KEYSTROKE = 0.04
"""Seconds between two keys, so that the recording can be read."""
WHY = {"risk": "low", "mutation": True, "privesc": False, "why": "it is rotated, packed and older than a week"}
SCRIPT = [
    Answer(
        (
            Reasoning("What is big, and may it go?"),
            Text("I look at the sizes first."),
            Call("run_shell", {"command": "cd ~/var/log && du -ah . | sort -rh | head -4"}),
        )
    ),
    Answer((Text("One rotated log takes most of it."), Call("run_shell", {"command": "rm app.log.1", **WHY}))),
    say("`app.log.1` took **1.5 MB** of 1.7 and is gone. Nothing else was changed."),
]


class Recorder:
    """Keeps what a terminal was sent, and when."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.events: list[tuple[float, str, str]] = []
        self.farewell = 0
        """The number of the event with which the conversation is over."""

    def write(self, data: bytes) -> None:
        """Called for everything that is read."""
        self.events.append((round(time.monotonic() - self.began, 3), "o", data.decode("utf-8", "replace")))

    def flush(self) -> None:
        """Called after each write."""

    def cast(self, home: Path) -> str:
        """The recording, as asciicast 2, without the name of its throw-away home."""
        events = [(when, kind, data.replace(str(home), "~")) for when, kind, data in self.events]
        head = {"version": 2, "width": WIDTH, "height": HEIGHT, "env": {"TERM": "xterm-256color"}}
        return "\n".join(json.dumps(line, ensure_ascii=False) for line in (head, *events)) + "\n"


def demo() -> str:
    """What ``harness demo --agent`` prints."""
    with TemporaryDirectory(prefix="hm-", dir="/tmp") as home:
        argv = [str(Path(sys.executable).parent / "harness"), "demo", "--agent"]
        environment = _environment(Path(home))
        with subprocess.Popen(
            argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as child:
            try:
                printed, errors = child.communicate(timeout=TIMEOUT)
            finally:
                child.terminate()  # then it ends its tmux server, which a kill would leave
    if child.returncode:
        raise SystemExit(errors)
    return printed


def talk(environment: Mapping[str, str]) -> Recorder:
    """A conversation at the prompt, typed as a person would."""
    recorder = Recorder()
    argv = ["--ssh", HOST, "--tmux"]
    size = (HEIGHT, WIDTH)
    child = pexpect.spawn("harness", argv, env=dict(environment), dimensions=size, timeout=TIMEOUT)
    child.logfile_read = recorder
    try:
        child.expect(b"idle")
        _type(child, "What fills the disk? Remove it if it is only a rotated log.\r")
        child.expect_exact(b"answer (denied")
        time.sleep(1)
        _type(child, "y")
        child.expect(b"Nothing else was changed")
        child.expect(b"idle")
        recorder.farewell = len(recorder.events)
        _type(child, "/quit\r")
        child.expect(pexpect.EOF)
    finally:
        child.close(force=True)
    return recorder


def _type(child: pexpect.spawn[bytes], text: str) -> None:
    for key in text:
        child.send(key)
        time.sleep(KEYSTROKE)


async def record() -> tuple[str, str]:
    """The recording, and a picture of its last screen before the end."""
    with TemporaryDirectory(prefix="hm-", dir="/tmp") as folder:
        home = Path(folder)
        log = home / "var" / "log"
        log.mkdir(parents=True)
        for name, size in (("app.log.1", 1_500_000), ("app.log", 150_000), ("cron.log", 20_000)):
            (log / name).write_bytes(b"x" * size)
        with model_server(SCRIPT) as server:
            async with _web1(home) as environment:
                _configure(home, server.openai_url)
                environment["MODEL_KEY"] = "not-a-key"
                recorder = await anyio.to_thread.run_sync(talk, environment)
                return recorder.cast(home), await _last_screen(recorder, home, environment)


def _configure(home: Path, url: str) -> None:
    folder = home / ".config" / "harness"
    folder.mkdir(parents=True)
    table = f'[models.scripted]\nprovider = "openai"\nmodel = "scripted"\nbase_url = "{url}"\ncontext_window = 200000\n'
    (folder / "config.toml").write_text(table + 'key = { env = "MODEL_KEY" }\n')


async def _last_screen(recorder: Recorder, home: Path, environment: Mapping[str, str]) -> str:
    """Play the recording to a terminal, up to the farewell."""
    played = "".join(data for _, _, data in recorder.events[: recorder.farewell])
    (home / "played").write_text(played.replace(str(home), "~"))
    async with _outer_terminal(environment, WIDTH, HEIGHT) as outer:
        await _tmux(outer, environment, "send-keys", f"clear; cat {home / 'played'}; sleep 60", "Enter")
        return _picture(await _screen_with(outer, environment, "Nothing else was changed"), WIDTH)


def main() -> None:
    """Make the media, or with ``--check`` fail when the demo says something else than the committed transcript."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    transcript = demo()
    if parser.parse_args().check:
        if shape(transcript) != shape(TRANSCRIPT.read_text()):
            raise SystemExit(f"the transcript is now:\n{transcript}")
        return
    TRANSCRIPT.write_text(transcript)
    cast, picture = anyio.run(record)
    RECORDING.write_text(cast)
    PICTURE.write_text(picture)


if __name__ == "__main__":
    os.environ.pop("TMUX", None)
    main()
