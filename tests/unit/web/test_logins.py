"""Invitations and logins of the dashboard: used once, kept as hashes, and ended."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from harness.errors import ConfigError, HarnessError
from harness.web.logins import (
    INVITATION_LIFETIME,
    LOGIN_LIFETIME,
    MAX_ENTRIES,
    Exchanged,
    LoginStore,
    Role,
    login_directory,
)


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def exchanged(store: LoginStore, name: str = "anna", role: Role = Role.OPERATOR) -> Exchanged:
    found = store.exchange(store.invite(name, role))
    assert found is not None
    return found


def test_an_invitation_is_exchanged_once(tmp_path: Path) -> None:
    store = LoginStore(tmp_path / "web")
    token = store.invite("anna", Role.VIEWER)
    found = store.exchange(token)
    assert found is not None
    assert (found.login.name, found.login.role) == ("anna", Role.VIEWER)
    assert store.find(found.cookie, found.key) == found.login
    assert store.exchange(token) is None


def test_a_login_needs_both_the_cookie_and_the_key(tmp_path: Path) -> None:
    store = LoginStore(tmp_path / "web")
    one, other = exchanged(store), exchanged(store, "ben")
    for cookie, key in [(one.cookie, other.key), (one.cookie, ""), ("", one.key), (one.key, one.cookie), ("", "")]:
        assert store.find(cookie, key) is None
    assert store.find(one.cookie, one.key) == one.login


def test_no_secret_is_in_the_file_which_is_private(tmp_path: Path) -> None:
    store = LoginStore(tmp_path / "state" / "web")
    waiting = store.invite("ben", Role.VIEWER)
    found = exchanged(store)
    files = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    content = "".join(path.read_text() for path in files)
    assert not any(secret in content for secret in (waiting, found.cookie, found.key))
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE((tmp_path / "state" / "web").stat().st_mode) == 0o700


def test_a_restarted_server_knows_the_login(tmp_path: Path) -> None:
    found = exchanged(LoginStore(tmp_path / "web"))
    assert LoginStore(tmp_path / "web").find(found.cookie, found.key) == found.login


def test_invitations_and_logins_expire(tmp_path: Path) -> None:
    clock = Clock()
    store = LoginStore(tmp_path / "web", clock)
    found, unused = exchanged(store), store.invite("ben", Role.VIEWER)
    clock.now += INVITATION_LIFETIME
    assert store.exchange(unused) is None
    assert store.find(found.cookie, found.key) is not None
    clock.now += LOGIN_LIFETIME
    assert store.find(found.cookie, found.key) is None
    assert store.logins() == []


def test_ended_logins_count_no_more_also_in_other_processes(tmp_path: Path) -> None:
    store, other = LoginStore(tmp_path / "web"), LoginStore(tmp_path / "web")
    one, two, ben = exchanged(store), exchanged(store), exchanged(store, "ben")
    assert other.end(login_id=one.login.login_id) == 1
    assert [store.find(login.cookie, login.key) is not None for login in (one, two, ben)] == [False, True, True]
    assert other.end(name="anna") == 1
    assert [store.find(login.cookie, login.key) is not None for login in (one, two, ben)] == [False, False, True]


def test_the_number_of_entries_is_bounded(tmp_path: Path) -> None:
    store = LoginStore(tmp_path / "web")
    tokens = [store.invite("anna", Role.VIEWER) for _ in range(MAX_ENTRIES + 3)]
    assert store.exchange(tokens[-1]) is not None
    assert store.exchange(tokens[0]) is None


@pytest.mark.parametrize("name", ["", " anna", "a\nb", "a\x1b[31m", "x" * 65])
def test_a_name_that_would_forge_the_audit_log_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="invalid name"):
        LoginStore(tmp_path / "web").invite(name, Role.VIEWER)


def test_a_directory_that_others_can_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "web").mkdir(mode=0o755)
    with pytest.raises(ConfigError, match="other users"):
        LoginStore(tmp_path / "web")


@pytest.mark.parametrize(
    "server", ["not JSON", "[]", "{}", "5", '["u", "h", "b", "s", "1", "t"]', "[1, 2, 3, 4, 5, 6]"]
)
def test_a_damaged_server_is_a_damaged_file(tmp_path: Path, server: str) -> None:
    document = {"url": "http://localhost:1", "server": server, "invitations": [], "logins": []}
    (tmp_path / "logins.json").write_text(json.dumps(document))
    with pytest.raises(HarnessError, match="cannot be read"):
        _ = LoginStore(tmp_path).running_url


def test_a_damaged_file_logs_nobody_in(tmp_path: Path) -> None:
    store = LoginStore(tmp_path / "web")
    found = exchanged(store)
    for text in ("", "{}", "[]", '{"url": "", "invitations": [{}], "logins": []}'):
        (tmp_path / "web" / "logins.json").write_text(text)
        with pytest.raises(HarnessError, match="cannot be read"):
            LoginStore(tmp_path / "web").find(found.cookie, found.key)


@pytest.mark.usefixtures("needs_process")
def test_a_job_of_harness_lets_no_operator_in(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "HARNESS_JOB": "1"}
    LoginStore(login_directory(environment)).set_url("http://127.0.0.1:1/")
    harness = [str(Path(sys.executable).with_name("harness")), "web"]
    argv = [*harness, "invite", "eve", "--role", "operator"]
    refused = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert refused.returncode != 0
    assert "in a pane or a job of harness" in refused.stderr
    argv = [*harness, "--json", "--port", "0"]
    with subprocess.Popen(
        argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stdout is not None
            token = json.loads(server.stdout.readline())["url"].partition("#token=")[2]
        finally:
            server.terminate()
    found = LoginStore(login_directory(environment)).exchange(token)
    assert found is not None
    assert found.login.role is Role.VIEWER
