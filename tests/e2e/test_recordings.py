"""``--record`` and ``harness recordings``: recorded exactly and redacted, played anywhere, completed after a kill."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pexpect
import pytest
from tests.support.disks import small_disk
from tests.support.program import Program, over_ssh, program, there
from tests.support.resources import ASCIINEMA

from harness.pane_events import Closed, JobEnded, JobStarted, Output, Resized, Screen
from harness.recordings.export import PLAYER
from harness.recordings.writer import RecordingOptions, RecordingWriter

__all__ = ["over_ssh", "program", "there"]

SECRET = "hunter2-abcdefgh"


def recordings(program: Program) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(program.run("recordings", "--json").stdout)
    return found


def events(path: str) -> list[list[Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()[1:]]


def output(path: str) -> str:
    return "".join(event[2] for event in events(path) if event[1] == "o")


def markers(path: str) -> list[str]:
    return [event[2] for event in events(path) if event[1] == "m"]


def wait_until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def here(program: Program, needs_tmux: None) -> Iterator[Program]:
    """The program in a tmux server of its own on this machine, with a secret in its environment."""
    socket = f"hx-{os.urandom(4).hex()}"
    program.environ |= {"HARNESS_TMUX_SOCKET": socket, "DEPLOY_TOKEN": SECRET}
    yield program
    subprocess.run(["tmux", "-L", socket, "kill-server"], capture_output=True)


def test_a_run_is_recorded_with_its_job(there: Program) -> None:
    assert there.run("run", "--tmux", "--record", "--", r"printf '\033[1mbold\033[0m\n'; (exit 3)").returncode == 3
    (item,) = recordings(there)
    assert (item["state"], item["pane"], item["session"], item["jobs"]) == ("finished", "main", "harness", 1)
    assert "\x1b[1mbold\x1b[0m\r\n" in output(item["path"])
    assert markers(item["path"])[-2] == "job 1 ended: completed, exit code 3"
    assert re.fullmatch(r"recording ended \([0-9.]+ s, jobs: 1\)", markers(item["path"])[-1])
    shown = json.loads(there.run("recordings", "show", item["id"], "--json").stdout)
    assert [(job["job_id"], job["status"], job["exit_code"]) for job in shown["jobs"]] == [("1", "completed", 3)]
    assert b"bold" in there.run("recordings", "export", "--text", item["id"]).stdout


def test_a_setting_records_and_nothing_is_recorded_by_default(here: Program) -> None:
    here.run("run", "--tmux", "--", "true")
    assert recordings(here) == []
    here.environ |= {"HARNESS_RECORD": "true", "HARNESS_RECORD_FORMAT": "v3"}
    here.run("run", "--tmux", "--", "true")
    (item,) = recordings(here)
    assert json.loads(Path(item["path"]).read_text().splitlines()[0])["version"] == 3
    assert Path(item["path"]).stat().st_mode & 0o777 == 0o600
    assert Path(item["path"]).parent.stat().st_mode & 0o777 == 0o700


def test_without_a_terminal_there_is_a_warning(here: Program) -> None:
    done = here.run("run", "--record", "--", "echo out")
    assert (done.returncode, done.stdout) == (0, b"out\n")
    assert b"nothing is recorded without a terminal" in done.stderr
    here.environ["HARNESS_CONTROL_MODE"] = "never"
    done = here.run("run", "--record", "--tmux", "--", "echo out")
    assert (done.returncode, done.stdout) == (0, b"out\n")
    assert b"nothing is recorded" in done.stderr


def test_no_letter_of_a_secret_is_recorded_that_is_printed_letter_by_letter(here: Program) -> None:
    letters = (
        f"for l in {' '.join(SECRET)}; do printf '%s\\033[3%sm' $l 1; sleep 0.03; done; printf '\\033[0m\\n'; echo over"
    )
    assert here.run("run", "--tmux", "--record", "--", letters).returncode == 0
    assert here.run("run", "--tmux", "--record", "--", f"printf '%0140d{SECRET}\\n' 1; echo {SECRET}").returncode == 0
    for item in recordings(here):
        text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", output(item["path"]))
        assert SECRET not in Path(item["path"]).read_text()
        assert SECRET[:4] not in text.replace("h u n t", "")
        assert "[redacted]" in text


def test_each_pane_has_a_recording(here: Program) -> None:
    script = "harness.connect(tmux=True, config=harness.Config(tmux_socket=os.environ['HARNESS_TMUX_SOCKET']))"
    code = (
        "import anyio, harness, os\n"
        "from harness.recordings.recorder import record_panes\n"
        "from harness.recordings.writer import RecordingOptions\n"
        "from harness.toolkit.redaction.redactor import PatternRedactor\n"
        "async def main():\n"
        f"    async with {script} as ctx, record_panes(ctx, PatternRedactor(), RecordingOptions()):\n"
        "        await ctx.run_shell('echo in main')\n"
        "        job = await ctx.run_shell('echo in the background; sleep 0.5', wait=False)\n"
        "        await ctx.wait(job.job_id)\n"
        "        await ctx.send_keys(literal_text='echo ty''ped', enter=True)\n"
        "anyio.run(main)\n"
    )
    subprocess.run([sys.executable, "-c", code], env=here.environ, cwd=here.home, check=True, timeout=60)
    texts = {item["pane"]: output(item["path"]) for item in recordings(here)}
    assert set(texts) == {"main", "bg-1"}
    assert "in main\r\n" in texts["main"]
    assert "in the background\r\n" in texts["bg-1"]


def kill_during_a_job(program: Program, command: str, seen: str) -> dict[str, Any]:
    process = program.start("run", "--tmux", "--record", "--", command)
    wait_until(lambda: any(seen in output(item["path"]) for item in recordings(program) if item["jobs"]))
    process.kill()
    process.communicate()
    return recordings(program)[0]


def test_a_killed_harness_leaves_a_recording_that_is_completed(here: Program) -> None:
    go = here.home / "go"
    command = f"echo one; until [ -e {go} ]; do sleep 0.1; done; echo two {SECRET}; (exit 4)"
    item = kill_during_a_job(here, command, "one\r\n")
    assert item["state"] == "unfinished"
    go.touch()
    wait_until(lambda: recordings(here)[0]["state"] == "finished")
    assert re.search(r"one\r\ntwo \[redacted\]\r\n\Z", output(item["path"]))
    ends = markers(item["path"])
    assert ends[1] == "gap: harness stopped here"
    assert ends[-2] == "job 1 ended: completed, exit code 4"
    assert ends[-1].startswith("recording ended: completed after harness had stopped (")


@pytest.mark.parametrize("there", ["ssh"], indirect=True)
def test_the_next_harness_completes_a_recording_on_another_host(there: Program) -> None:
    go = there.home / "go"
    item = kill_during_a_job(there, f"echo one; until [ -e {go} ]; do sleep 0.1; done; echo two", "one\r\n")
    go.touch()
    assert there.run("jobs", "wait", "1").returncode == 0
    assert recordings(there)[0]["state"] == "unfinished"
    assert there.run("run", "--tmux", "--record", "--", "true").returncode == 0
    assert "one\r\ntwo\r\n" in output(item["path"])
    assert recordings(there)[0]["state"] == "finished"


def test_what_the_target_does_not_have_is_a_gap(here: Program) -> None:
    item = kill_during_a_job(here, "echo one; sleep 60", "one\r\n")
    shutil.rmtree(Path(here.environ["XDG_STATE_HOME"], "harness", "jobs"))
    assert recordings(here)[0]["state"] == "finished"
    assert any("no record of job 1" in marker for marker in markers(item["path"]))


def test_a_full_recording_stops_and_the_command_does_not(here: Program) -> None:
    here.environ["HARNESS_RECORD_MAX_BYTES"] = "20000"
    done = here.run("run", "--tmux", "--record", "--", "seq 20000")
    assert done.stdout.splitlines()[-1] == b"20000"
    (item,) = recordings(here)
    assert item["bytes"] < 22_000
    assert markers(item["path"])[-1].startswith("recording ended: record_max_bytes (")


# -- a full disk


@pytest.mark.usefixtures("needs_root")
def test_a_full_disk_ends_the_recording_and_not_the_command(here: Program, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as full:
        here.environ["XDG_STATE_HOME"] = str(tmp_path / "disk")
        here.run("run", "--tmux", "--record", "--", "true")
        (kept,) = recordings(here)
        with full():
            done = here.run("run", "--tmux", "--record", "--", "echo out")
        assert (done.returncode, done.stdout) == (0, b"out\n")
        assert b"pane main: the recording stopped: no space left on device" in done.stderr
        assert list((tmp_path / "disk/harness/recordings").iterdir()) == [Path(kept["path"])]


@pytest.mark.usefixtures("needs_root")
def test_a_recording_is_completed_as_a_whole_or_not_at_all(here: Program, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as full:
        here.environ["XDG_STATE_HOME"] = str(tmp_path / "disk")
        item = kill_during_a_job(here, "echo one; until [ -e go ]; do sleep 0.05; done; exit 4", "one\r\n")
        path = Path(item["path"])
        before = path.read_bytes()
        before += b"#" * ((-len(before) - 31) % 4096) + b"\n"  # the disk's last page has 30 bytes for a part of the end
        path.write_bytes(before)
        (here.home / "go").touch()
        with full():
            wait_until(lambda: b"no space left" in here.run("recordings", "list").stderr)
            assert path.read_bytes() == before
        wait_until(lambda: recordings(here)[0]["state"] == "finished")
        assert path.read_text().count("gap: harness stopped here") == 1


# -- many hosts


@pytest.mark.usefixtures("needs_ssh", "needs_tmux")
def test_each_host_has_recordings_with_its_name(fleet_program: Program) -> None:
    fleet_program.environ["DEPLOY_TOKEN"] = SECRET
    command = ("--", f"cd; basename $PWD; echo {SECRET}")
    done = fleet_program.run("run", "--hosts", "web[1-3],down", "--tmux", "--record", *command)
    assert b"web1" in done.stdout
    found = {item["host"]: item for item in recordings(fleet_program)}
    assert sorted(found) == ["web1", "web2", "web3"]
    for name, item in found.items():
        assert (item["state"], item["pane"], item["target"], item["jobs"]) == ("finished", "main", f"ssh://{name}", 1)
        assert f"\r\n{name}\r\n[redacted]\r\n" in f"\r\n{output(item['path'])}"
        assert json.loads(Path(item["path"]).read_text().splitlines()[0])["title"] == f"main on {name}"
        assert f"-{name}-main-" in item["id"]
    shown = fleet_program.run("recordings", "list").stdout.decode()
    assert re.search(r"finished +web2 +main", shown)
    assert fleet_program.run("--ssh", "web2", "jobs", "replay", "1").stdout.count(b"web2\r\n") == 1


@pytest.mark.usefixtures("needs_ssh", "needs_tmux")
def test_too_many_hosts_are_not_recorded(fleet_program: Program) -> None:
    done = fleet_program.run(
        "run", "--hosts", "web1,x[1-32]", "--tmux", "--record", "--connect-timeout", "1", "--", "echo out"
    )
    assert b"out" in done.stdout
    assert b"nothing is recorded: 33 hosts, and at most 32 are recorded at once" in done.stderr
    assert recordings(fleet_program) == []


# -- players


@pytest.fixture
def recorded(here: Program) -> dict[str, Any]:
    command = r"printf '\033]0;EVIL\007\033]52;c;RVZJTA==\007\033[6n\033[31mred\033[0m\n'; sleep 1; echo after"
    assert here.run("run", "--tmux", "--record", "--", command).returncode == 0
    return recordings(here)[0]


def test_a_recording_plays_and_leaves_the_terminal_as_it_was(here: Program, recorded: dict[str, Any]) -> None:
    child = pexpect.spawn(
        here.path, ["recordings", "play", recorded["id"]], env=here.environ, dimensions=(50, 200), timeout=20
    )
    child.expect_exact("\x1b[31mred\x1b[0m")
    played = child.before
    child.expect_exact("after")
    child.expect(pexpect.EOF)
    played += child.before
    child.close()
    assert child.exitstatus == 0
    assert b"EVIL" not in played.replace(b"\\033]0;EVIL", b"").replace(b"RVZJTA", b"")
    assert b"\x1b]" not in played
    assert b"\x1b[6n" not in played
    assert played.rstrip().endswith(b"\x1b[?25h\x1b[40;1H")


def played_in_shell(program: Program, item: dict[str, Any]) -> str:
    """A script that plays a recording, and says whether the terminal's modes are as before."""
    play = f"{program.path} recordings play {item['id']}"
    return f'before=$(stty -g); {play}; [ "$(stty -g)" = "$before" ] && echo "modes kept"'


def test_space_pauses_and_q_quits(here: Program, recorded: dict[str, Any]) -> None:
    script = played_in_shell(here, recorded)
    child = pexpect.spawn("/bin/sh", ["-c", script], env=here.environ, dimensions=(50, 200), timeout=20)
    child.expect_exact("\x1b[31mred\x1b[0m")
    child.send(" ")
    assert child.expect_exact(["after\r\n", pexpect.TIMEOUT], timeout=2.5) == 1
    child.send(" ")
    child.expect_exact("after\r\n")
    child.expect_exact("modes kept")
    child.close()
    child = pexpect.spawn("/bin/sh", ["-c", script], env=here.environ, dimensions=(50, 200), timeout=20)
    child.expect_exact("\x1b[31mred\x1b[0m")
    child.send("q")
    child.expect_exact("modes kept")
    assert b"after\r\n" not in child.before
    child.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_the_terminal_as_it_was(
    here: Program, recorded: dict[str, Any], number: signal.Signals
) -> None:
    script = played_in_shell(here, recorded)
    child = pexpect.spawn("/bin/sh", ["-c", script], env=here.environ, dimensions=(50, 200), timeout=20)
    child.expect_exact("\x1b[31mred\x1b[0m")
    found = subprocess.run(["pgrep", "-P", str(child.pid)], capture_output=True, text=True, check=True)
    os.kill(int(found.stdout.split()[0]), number)
    child.expect_exact("\x1b[?25h")
    child.expect_exact("modes kept")
    child.close()


def test_play_starts_at_a_job_and_jobs_replay_plays_one(here: Program) -> None:
    shell = "harness run --tmux --record -- "
    here.environ["PATH"] = f"{os.path.dirname(here.path)}:{here.environ['PATH']}"
    subprocess.run(
        ["sh", "-c", f"{shell}'echo first'; {shell}'echo second'"], env=here.environ, cwd=here.home, check=True
    )
    played = here.run("jobs", "replay", "1").stdout
    assert b"first\r\n" in played
    assert b"second\r\n" not in played
    last = recordings(here)[-1]
    assert b"second\r\n" in here.run("recordings", "play", last["id"], "--from-job", "2").stdout
    missing = here.run("jobs", "replay", "77")
    assert missing.returncode == 125
    assert b"no recording of local: has job 77" in missing.stderr


def test_asciinemas_own_program_plays_both_versions(
    here: Program, recorded: dict[str, Any], needs_asciinema: None
) -> None:
    """Its last release for Python reads version 2; version 3 is read by the page's player, below."""
    program = str(ASCIINEMA)
    done = subprocess.run([program, "cat", recorded["path"]], capture_output=True, timeout=30, check=True)
    assert done.stdout.decode() == output(recorded["path"])
    child = pexpect.spawn(program, ["play", "-s", "5", recorded["path"]], dimensions=(50, 200), timeout=20)
    child.expect_exact("after")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


def dumped_dom(page: Path, profile: Path) -> str:
    """What a page becomes in Chromium without a network, some seconds after it was opened."""
    browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    browser += ["--virtual-time-budget=8000", "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}"]
    done = subprocess.run([*browser, "--dump-dom", page.as_uri()], capture_output=True, timeout=60)
    assert b"Content Security Policy" not in done.stderr
    return done.stdout.decode()


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_the_exported_page_plays_in_a_browser(here: Program, version: str, needs_browser: None) -> None:
    here.environ["HARNESS_RECORD_FORMAT"] = version
    assert here.run("run", "--tmux", "--record", "--", "echo shown in the page").returncode == 0
    item = recordings(here)[0]
    page = here.home / "page.html"
    assert here.run("recordings", "export", item["id"], "--output", str(page)).returncode == 0
    again = here.run("recordings", "export", item["id"], "--output", str(page))
    assert (again.returncode, b"exists" in again.stderr) == (125, True)
    dom = dumped_dom(page, here.home / "browser")
    assert "shown in the page" in re.sub(r"<[^>]*>", "", dom.partition('id="player"')[2].partition("<script>")[0])


@pytest.mark.parametrize("version", [2, 3])
def test_asciinemas_player_shows_sizes_and_markers_of_a_file(
    tmp_path: Path, version: Literal[2, 3], needs_browser: None
) -> None:
    """The file itself, without the changes of an export."""
    path = tmp_path / "name.cast"
    events = [
        Screen(1000.0, 40, 5, b"\x1b[1;1H$ "),
        JobStarted(1001.0, "7", "make"),
        Output(1001.5, b"first\r\n"),
        JobEnded(1002.0, "7", 0, "completed"),
        Resized(1003.0, 90, 7),
        Screen(1003.0, 90, 7, b"\x1b[1;1H" + b"x" * 85 + b"\x1b[2;1Hlast"),
        Closed(1004.0),
    ]
    with RecordingWriter(path, {}, "title", RecordingOptions(version=version)) as writer:
        for event in events:
            writer.write(event)
    scripts = (PLAYER / name for name in ("asciinema-player.css", "asciinema-player.min.js"))
    style, script = (file.read_text("utf-8").replace("</script", r"<\/script") for file in scripts)
    data = json.dumps(path.read_text("utf-8")).replace("<", "\\u003c")
    page = tmp_path / "page.html"
    page.write_text(
        f'<style>{style}</style><div id="player"></div><script>{script}</script>'
        f"<script>AsciinemaPlayer.create({{data: {data}}}, document.getElementById('player'),"
        "{poster: 'npt:3.9', preload: true, controls: true})</script>",
        "utf-8",
    )
    dom = dumped_dom(page, tmp_path / "browser")
    text = re.sub(r"<[^>]*>", "", dom.partition('id="player"')[2].partition("<script>")[0])
    assert "x" * 85 in text
    assert "last" in text
    assert len(re.findall(r'class="ap-marker-container', dom)) == 3


def test_a_flood_at_the_end_delays_the_exit_for_seconds_at_most_and_what_is_missing_is_marked(here: Program) -> None:
    begin = time.monotonic()
    plain = here.run("run", "--tmux", "--", "seq 1500000 | sed 's/^/password=/'")
    alone = time.monotonic() - begin
    begin = time.monotonic()
    done = here.run("run", "--tmux", "--record", "--", "seq 1500000 | sed 's/^/password=/'")
    assert done.stdout == plain.stdout
    assert time.monotonic() - begin < 3 * alone + 15
    (item,) = recordings(here)
    assert "gap" in " ".join(markers(item["path"])) or "harness exited before" in markers(item["path"])[-1]
