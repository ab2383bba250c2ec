"""Lines of known_hosts files, matched as OpenSSH matches them: ssh-keygen is the judge."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness_backends.ssh.known_hosts import add_known_key, find_known_keys, host_name

KEYS = [f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{letter * 42}" for letter in "ABCD"]


def by_ssh_keygen(name: str, path: Path) -> list[str]:
    """The lines that ssh finds for a host, as marker and key."""
    done = subprocess.run(["ssh-keygen", "-F", name, "-f", str(path)], capture_output=True, text=True, check=False)
    lines = [line.split() for line in done.stdout.splitlines() if not line.startswith("#")]
    return [" ".join(words[1:3]) for words in lines]


@pytest.mark.usefixtures("needs_ssh")
@pytest.mark.parametrize("name", ["web1", "web2", "[web1]:2222", "10.0.0.1", "db.example.com", "::1", "[::1]:22222"])
def test_the_same_lines_are_found_as_ssh_finds(tmp_path: Path, name: str) -> None:
    path = tmp_path / "known_hosts"
    lines = [
        f"web1,10.0.0.1 {KEYS[0]}",
        f"WEB1 {KEYS[1]} with a comment",
        f"web*,!web1 {KEYS[2]}",
        f"[web1]:2222 {KEYS[3]}",
        f"web?,db.example.* {KEYS[1]}",
        f"10.0.0.0/8 {KEYS[3]}",
        f"::1,[::1]:22222 {KEYS[0]}",
        f"  web1 {KEYS[3]}",
        f"# web1 {KEYS[2]}",
    ]
    path.write_text("\n".join(lines) + "\n")
    add_known_key(str(path), "db.example.com", KEYS[0], hashed=True)
    assert [line.key for line in find_known_keys(name, [str(path)])] == by_ssh_keygen(name, path)


def test_markers_and_places_are_kept_and_broken_lines_ignored(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_text(
        f"broken\n@revoked web1 {KEYS[0]}\n@cert-authority * {KEYS[1]}\n@other web1 {KEYS[2]}\n|1|x {KEYS[3]}\n"
        f"web1 1024 35 1234567\nx\xa0web1 {KEYS[0]}\nweb1\xa0{KEYS[0]} x\n"  # of version 1; only ASCII separates
    )
    found = find_known_keys("web1", [str(path), str(tmp_path / "missing")])
    assert [(line.marker, line.key) for line in found] == [("@revoked", KEYS[0]), ("@cert-authority", KEYS[1])]
    assert found[0].place == f"{path}:2"


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_text(f"web1 {KEYS[0]}\n")
    assert len(find_known_keys("web1", [str(path)])) == 1
    add_known_key(str(path), "web1", KEYS[1], hashed=False)
    assert [line.key for line in find_known_keys("web1", [str(path)])] == KEYS[:2]


@pytest.mark.usefixtures("needs_ssh")
def test_a_key_is_recorded_with_or_without_a_hash(tmp_path: Path) -> None:
    path = tmp_path / "dir" / "known_hosts"
    path.parent.mkdir()
    path.write_text("# last line without its end")
    add_known_key(str(path), host_name("web1", 2222), KEYS[0], hashed=False)
    add_known_key(str(path), host_name("web2", 22), KEYS[1], hashed=True)
    assert "web2" not in path.read_text()
    assert path.read_text().startswith(f"# last line without its end\n[web1]:2222 {KEYS[0]}\n|1|")
    assert by_ssh_keygen("[web1]:2222", path) == [KEYS[0]]
    assert by_ssh_keygen("web2", path) == [KEYS[1]]
