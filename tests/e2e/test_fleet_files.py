"""Files on many hosts behind real sshds: read, write, upload and download with --hosts."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import pexpect
import pytest
from tests.support.fleet_hosts import FleetHosts
from tests.support.program import Program
from tests.support.sshd import SshServer

HOSTS = ("--hosts", "web[1-3]")


def by_host(stdout: bytes) -> tuple[dict[str, dict[str, object]], dict[str, int]]:
    *hosts, summary = map(json.loads, stdout.splitlines())
    return {item["host"]: item for item in hosts}, summary["summary"]


# -- read


def test_equal_contents_are_printed_once(fleet_program: Program, fleet_hosts: FleetHosts) -> None:
    lines = [f"line {number}" for number in range(20)]
    for name in ("web1", "web2", "web3"):
        (fleet_hosts.home(name) / "conf").write_text("\n".join([*lines, "last" if name == "web2" else "end", ""]))
    done = fleet_program.run("read", *HOSTS, "conf")
    first = "".join(f"{line}\n" for line in [*lines, "end"])
    other = "== web2 (1), changes to the first output\n@@ -20,2 +20,2 @@\n line 19\n-end\n+last\n"
    assert (done.returncode, done.stdout.decode()) == (0, f"== web[1,3] (2)\n{first}{other}"), done.stderr
    assert b"3 hosts: 3 ok" in done.stderr


def test_a_part_of_each_file_is_read(fleet_program: Program, fleet_hosts: FleetHosts) -> None:
    for number in (1, 2, 3):
        (fleet_hosts.home(f"web{number}") / "f").write_bytes(b"%d2345\n" % number)
    done = fleet_program.run("read", "--offset", "1", "--limit", "2", *HOSTS, "f")
    assert (done.returncode, done.stdout) == (0, b"== web[1-3] (3)\n23\n")


def test_a_host_without_the_file_and_one_that_is_down(fleet_program: Program, fleet_hosts: FleetHosts) -> None:
    for name in ("web1", "web2"):
        (fleet_hosts.home(name) / "f").write_text("x\n")
    done = fleet_program.run("read", *HOSTS, "f")
    assert (done.returncode, done.stdout) == (1, b"== web[1-2] (2)\nx\n")
    assert b"harness: web3 (1): f: no such file or directory\n" in done.stderr
    assert b"3 hosts: 2 ok, 1 failed" in done.stderr
    done = fleet_program.run("read", "--hosts", "web1,down,down2", "f")
    assert (done.returncode, done.stdout) == (125, b"== web1 (1)\nx\n")
    assert b"harness: down,down2 (2): connect to host" in done.stderr


def test_contents_as_json(fleet_program: Program, fleet_hosts: FleetHosts) -> None:
    (fleet_hosts.home("web1") / "f").write_bytes(b"\xff")
    done = fleet_program.run("--json", "read", "--ssh", "web1", "--ssh", "web2", "f")
    hosts, summary = by_host(done.stdout)
    assert (hosts["web1"]["size"], hosts["web1"]["text_base64"]) == (1, "/w==")
    assert hosts["web2"]["error"]["type"] == "FileNotFound"  # type: ignore[index]  # an object of JSON
    assert (summary["ok"], summary["failed"], done.returncode) == (1, 1, 1)


# -- write


def test_each_host_gets_the_whole_content(fleet_program: Program, fleet_hosts: FleetHosts) -> None:
    content = os.urandom(300_000)
    done = fleet_program.run("write", *HOSTS, "--mode", "0640", "sub/f", stdin=content)
    assert (done.returncode, done.stdout) == (0, b""), done.stderr
    for name in ("web1", "web2", "web3"):
        written = fleet_hosts.home(name) / "sub/f"
        assert (written.read_bytes(), stat.S_IMODE(written.stat().st_mode)) == (content, 0o640)
    done = fleet_program.run("--json", "write", "--append", *HOSTS, "sub/f", stdin=b"x")
    hosts, summary = by_host(done.stdout)
    assert {item["bytes_written"] for item in hosts.values()} == {1}
    assert summary["ok"] == 3


def test_a_wrong_pattern_is_an_error_before_the_input_ends(fleet_program: Program) -> None:
    with fleet_program.start("write", "--hosts", "@nope", "/tmp/x", stdin=subprocess.PIPE) as writing:
        assert writing.wait(30) == 125  # its input is still open


def test_a_version_is_expected_on_each_host(fleet_program: Program, fleet_hosts: FleetHosts) -> None:
    for name in ("web1", "web2", "web3"):
        (fleet_hosts.home(name) / "f").write_text("other" if name == "web3" else "old")
    version = json.loads(fleet_program.run("--json", "--ssh", "web1", "read", "f").stdout)["version"]
    done = fleet_program.run("write", *HOSTS, "--expect", version, "f", stdin=b"new")
    assert done.returncode == 1
    assert b"web3 (1): f: is not the expected version" in done.stderr
    contents = [(fleet_hosts.home(name) / "f").read_text() for name in ("web1", "web2", "web3")]
    assert contents == ["new", "new", "other"]


def test_waves_of_writes_stop_after_a_failure(fleet_program: Program, fleet_hosts: FleetHosts) -> None:
    (fleet_hosts.home("web1") / "f").mkdir()
    done = fleet_program.run("write", *HOSTS, "--rolling", "1", "f", stdin=b"new")
    assert done.returncode == 1
    assert b"web1 (1): f: is a directory" in done.stderr
    assert b"web[2-3] (2): not started: the limit of failed hosts" in done.stderr
    assert not (fleet_hosts.home("web2") / "f").exists()


# -- upload and download


def test_a_file_is_uploaded_to_each_host(fleet_program: Program, fleet_hosts: FleetHosts) -> None:
    local = fleet_program.home / "local"
    local.write_bytes(content := os.urandom(300_000))
    local.chmod(0o750)
    done = fleet_program.run("upload", *HOSTS, "local", "sub/there")
    assert (done.returncode, done.stdout) == (0, b""), done.stderr
    for name in ("web1", "web2", "web3"):
        copy = fleet_hosts.home(name) / "sub/there"
        assert (copy.read_bytes(), stat.S_IMODE(copy.stat().st_mode)) == (content, 0o750)
    done = fleet_program.run("upload", *HOSTS, "missing", "sub/there")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.count(b"\n") == 1  # no host was connected


def test_the_line_with_counts_has_the_uploaded_bytes(fleet_program: Program) -> None:
    (fleet_program.home / "local").write_bytes(bytes(2_000_000))
    words = [*fleet_program.always, "upload", *HOSTS, "local", "there"]
    env = fleet_program.environ | {"TERM": "xterm"}
    child = pexpect.spawn(fleet_program.path, words, env=env, cwd=str(fleet_program.home), timeout=30)  # type: ignore[arg-type]  # a mapping is enough
    child.expect(rb"/3 done, 0 failed, \d running, \d\.\d of 6\.0 MB")
    child.expect("3 hosts: 3 ok")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


def test_each_hosts_file_is_downloaded_into_its_directory(fleet_program: Program, fleet_hosts: FleetHosts) -> None:
    for name in ("web1", "web2"):
        (fleet_hosts.home(name) / "sub").mkdir()
        (fleet_hosts.home(name) / "sub/f").write_text(f"of {name}")
    done = fleet_program.run("download", *HOSTS, "sub/f", "copies")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"web3 (1): sub/f: no such file or directory" in done.stderr
    copies = fleet_program.home / "copies"
    found = {str(path.relative_to(copies)): path.read_text() for path in copies.rglob("*") if path.is_file()}
    assert found == {"web1/f": "of web1", "web2/f": "of web2"}
    assert not (copies / "web3").exists()


def test_a_download_replaces_nothing_unless_it_is_told_to(fleet_program: Program, fleet_hosts: FleetHosts) -> None:
    for name in ("web1", "web2", "web3"):
        (fleet_hosts.home(name) / "f").write_text("new")
    copy = fleet_program.home / "copies/web2/f"
    copy.parent.mkdir(parents=True)
    copy.write_text("old")
    done = fleet_program.run("download", *HOSTS, "f", "copies")
    assert (done.returncode, copy.read_text()) == (1, "old")
    assert b"web2 (1): copies/web2/f: already exists" in done.stderr
    assert (fleet_program.home / "copies/web1/f").read_text() == "new"
    done = fleet_program.run("download", *HOSTS, "f", "copies")
    assert b"web[1-3] (3): copies/HOST/f: already exists" in done.stderr
    done = fleet_program.run("--json", "download", "--overwrite", *HOSTS, "f", "copies")
    hosts, summary = by_host(done.stdout)
    assert (summary["ok"], copy.read_text()) == (3, "new")
    assert (hosts["web2"]["local"], hosts["web2"]["size"]) == ("copies/web2/f", 3)


def test_no_name_of_a_host_leads_out_of_the_directory(fleet_program: Program, fleet_hosts: FleetHosts) -> None:
    server = fleet_hosts.servers["web1"]
    (fleet_hosts.home("web1") / "f").write_text("x")
    config = fleet_hosts.directory / "ssh_config"
    for name in ("..", "."):
        entry = f"Host {name}\n  HostName 127.0.0.1\n  Port {server.port}\n"
        more = f"  UserKnownHostsFile {server.known_hosts}\n  IdentityFile {server.identity}\n"
        config.write_text(entry + more + config.read_text())
    words = ("--ssh", "..", "--ssh", ".", "--ssh", "ssh://web1", "--ssh", "a/../../b")
    fleet_program.run("download", *words, "f", "d/copies")
    outside = [path for path in fleet_program.home.rglob("f") if fleet_program.home / "d/copies" not in path.parents]
    assert outside == []
    assert not (fleet_program.home / "d/f").exists()


@pytest.mark.parametrize("path", ["sub/", "..", "~", ""])
def test_a_download_needs_the_name_of_a_file(fleet_program: Program, path: str) -> None:
    done = fleet_program.run("download", *HOSTS, path, "copies")
    assert done.returncode == 125
    assert b"does not end with the name of a file" in done.stderr
    assert not (fleet_program.home / "copies").exists()


# -- one target


def test_one_file_is_copied_both_ways(over_ssh: Program, sshd: SshServer) -> None:
    local, copy = over_ssh.home / "local", over_ssh.home / "copy"
    local.write_bytes(content := os.urandom(100_000))
    there = f"{sshd.home}/there"
    assert over_ssh.run("upload", "local", there).returncode == 0
    assert Path(there).read_bytes() == content
    assert over_ssh.run("download", there, "copy").returncode == 0
    assert copy.read_bytes() == content
    (over_ssh.home / "folder").mkdir()
    done = over_ssh.run("--json", "download", there, "folder")
    assert json.loads(done.stdout) == {"local": "folder/there", "size": 100_000}
    copy.write_text("mine")
    done = over_ssh.run("download", there, "copy")
    assert (done.returncode, copy.read_text()) == (1, "mine")
    assert b"already exists" in done.stderr
    assert over_ssh.run("download", "--overwrite", there, "copy").returncode == 0
    assert copy.read_bytes() == content
    assert json.loads(over_ssh.run("--json", "upload", "local", there).stdout)["bytes_written"] == 100_000
