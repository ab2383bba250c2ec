"""Command lines of ssh, and what its log means."""

from __future__ import annotations

import os
from itertools import pairwise

import pytest

from harness.config import Config
from harness.errors import AuthenticationError, ConfigError, ConnectError, HostKeyError, TargetNotFound
from harness.target import Hop, Target
from harness_backends.ssh.login import classify, diagnose
from harness_backends.ssh.options import (
    SshSettings,
    check_options,
    interactive_argv,
    jump_command,
    jump_config,
    master_argv,
    master_key,
    master_name,
    master_tag,
    server_name,
)

HOP = Target.parse("ssh://deploy@web1:2222").last


def values(argv: list[str]) -> dict[str, str]:
    """Options as ssh takes them: the first value counts."""
    found: dict[str, str] = {}
    for flag, word in pairwise(argv):
        if flag == "-o":
            name, _, value = word.partition("=")
            found.setdefault(name.lower(), value)
    return found


def test_the_master_is_ours_whatever_the_user_passes() -> None:
    config = Config(
        ssh_options=("ControlPath=/mine", "ControlPersist=yes", "RemoteCommand=x", "BatchMode=no", "Port=9")
    )
    argv = master_argv(HOP, config, "/run/s", questions=False, persist=600.0)
    options = values(argv)
    assert argv[argv.index("-S") + 1] == "/run/s"
    assert (options["controlpersist"], options["remotecommand"], options["batchmode"]) == ("600", "none", "yes")
    assert argv[-4:] == ["-p", "2222", "--", "deploy@web1"]


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("LocalForward=8080 localhost:80", "harness forward"),
        ("dynamicforward 1080", "harness forward"),
        ("ForwardX11=yes", "ssh -N"),
        ("RemoteCommand=uptime", "harness run"),
        ("ControlPath=/mine", "control_persist"),
        ("ConnectTimeout = 3", "connect_timeout"),
        ("BatchMode=yes", "--batch"),
    ],
)
def test_an_option_that_would_be_dropped_is_refused_with_what_to_do_instead(option: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=option.partition("=")[0].split()[0]) as refused:
        check_options(Config(ssh_options=(option,)), "ssh://web1")
    assert hint in str(refused.value.hint)


def test_options_that_work_or_switch_off_are_accepted() -> None:
    check_options(Config(ssh_options=("Port=9", "User deploy", "ForwardX11=no", "RemoteCommand=none", "odd")), "x")


@pytest.mark.parametrize(("persist", "seconds"), [(0.0, "1"), (0.2, "1"), (1.5, "2"), (600.0, "600")])
def test_no_time_means_for_ever(persist: float, seconds: str) -> None:
    assert values(master_argv(HOP, Config(), "/s", questions=False, persist=persist))["controlpersist"] == seconds


def test_host_keys_are_left_to_the_user() -> None:
    for questions in (False, True):
        assert "stricthostkeychecking" not in values(master_argv(HOP, Config(), "/s", questions=questions, persist=1))


def test_a_persons_command_is_short_where_nothing_needs_switching_off() -> None:
    settings = SshSettings.parse("user deploy\nsessiontype default\nstdinnull no\ntunnel false\nforwardx11 no\n")
    argv = interactive_argv(Hop("ssh", "web1"), Config(), "/run/s", settings, ["tmux", "attach"])
    assert argv == ["ssh", "-t", "-S", "/run/s", "-o", "ControlMaster=no", "--", "web1", "exec tmux attach"]


def test_a_persons_command_switches_off_what_would_break_it() -> None:
    settings = SshSettings.parse("remotecommand foo\nsessiontype none\nlocalforward 1 [x]:2\nlocalforward 2 [x]:2\n")
    options = values(interactive_argv(HOP, Config(), "/s", settings, ["sh"]))
    assert options == {
        "controlmaster": "no",
        "remotecommand": "none",
        "sessiontype": "default",
        "clearallforwardings": "yes",
    }


def test_a_supervised_command_does_not_log_in_whatever_the_user_set() -> None:
    config = Config(ssh_options=("ProxyCommand=nc %h %p",))
    argv = interactive_argv(HOP, config, "/s", SshSettings.parse("proxyjump bastion"), ["sh"], logs_in=False)
    assert argv.index("ProxyCommand=false") < argv.index("ProxyCommand=nc %h %p")  # ssh uses the first one


def test_files_of_the_user_are_absolute() -> None:
    argv = master_argv(HOP, Config(identity="~/k", ssh_config="c"), "/s", questions=False, persist=1)
    assert argv[argv.index("-i") + 1] == os.path.expanduser("~/k")
    assert argv[argv.index("-F") + 1] == os.path.abspath("c")


def test_the_key_changes_with_everything_that_matters() -> None:
    settings = [SshSettings.parse("hostname a"), SshSettings.parse("hostname b")]
    configs = [Config(), Config(control_persist=1.0), Config(keepalive_interval=1)]
    assert len({master_key(value, config) for value in settings for config in configs}) == 6
    assert len(master_key(settings[0], Config())) == 16


@pytest.mark.parametrize(
    ("target", "name"),
    [("ssh://web1", "web1"), ("ssh://a@b:22", "a@b:22"), ("ssh://a@[::1]:22", "a@_::1_:22"), ("ssh://ü@x", "_@x")],
)
def test_names_of_sockets_are_plain(target: str, name: str) -> None:
    assert master_name(Target.parse(target).last) == name


def test_targets_that_share_a_name_for_people_have_other_tags() -> None:
    targets = ["ssh://web1", "ssh://web10", "ssh://web1:22", "ssh://a@web1", "ssh://ü@x", "ssh://é@x"]
    assert len({master_tag(Target.parse(target).last) for target in targets}) == len(targets)


def test_variables_are_those_of_the_users_patterns() -> None:
    settings = SshSettings.parse("sendenv LANG\nsendenv LC_*\nsendenv -LC_X\n")
    environ = {"LANG": "C", "LC_ALL": "C", "HOME": "/", "AWS_SECRET": "x"}
    assert settings.environment(environ) == [b"LANG=C", b"LC_ALL=C"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [("forwardagent no", False), ("forwardagent yes", True), ("forwardagent $X", True), ("", False)],
)
def test_agents_are_forwarded_as_the_user_says(value: str, expected: bool) -> None:
    assert SshSettings.parse(value).forwards_agent is expected


CHANGED = """debug1: Server host key: ssh-ed25519 SHA256:abc
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
Offending ED25519 key in /home/me/.ssh/known_hosts:3
Host key verification failed.
"""
JUMP = """me@bastion: Permission denied (publickey).
Connection closed by UNKNOWN port 65535
"""


@pytest.mark.parametrize(
    ("log", "kind", "says"),
    [
        (CHANGED, HostKeyError, "known_hosts:3"),
        (
            "debug1: Server host key: ssh-ed25519 SHA256:abc\nHost key verification failed.\n",
            HostKeyError,
            "SHA256:abc",
        ),
        ("ssh: Could not resolve hostname web9: Name or service not known\n", TargetNotFound, "web9"),
        ("me@web1: Permission denied (publickey,password).\n", AuthenticationError, "publickey"),
        ("Received disconnect from x: 2: Too many authentication failures\n", AuthenticationError, "Too many"),
        (JUMP, AuthenticationError, "bastion"),
        ("ssh: connect to host web1 port 22: Connection refused\n", ConnectError, "refused"),
        ("ssh: connect to host web1 port 22: Connection timed out\n", ConnectError, "timed out"),
        ("kex_exchange_identification: Connection closed by remote host\n", ConnectError, "kex"),
        ("nc: no\nConnection closed by UNKNOWN port 65535\n", ConnectError, "nc: no"),
        ("/home/me/.ssh/config: line 3: Bad configuration option: foo\n", ConfigError, "line 3"),
        ("Bad owner or permissions on /home/me/.ssh/config\n", ConfigError, "permissions"),
        ("debug1: nothing else\n", ConnectError, "without a message"),
        ("", ConnectError, "without a message"),
    ],
)
def test_the_log_says_why_a_login_failed(log: str, kind: type[ConnectError], says: str) -> None:
    error = diagnose(log, "ssh://web1")
    assert type(error) is kind
    assert says in str(error)
    assert "debug1" not in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("text", "secret", "kind"),
    [
        ("deploy@web1's password: ", True, "password"),
        ("(deploy@web1) Password: ", True, "password"),
        ("Enter passphrase for key '/home/me/.ssh/id': ", True, "passphrase"),
        ("Enter PIN for ED25519-SK key /home/me/.ssh/id: ", True, "passphrase"),
        ("Verification code: ", True, "otp"),
        ("(deploy@web1) One-time password (OATH) for `deploy': ", True, "otp"),
        ("Duo two-factor login\n\nPasscode or option (1-2): ", False, "otp"),
        ("Are you sure you want to continue connecting (yes/no/[fingerprint])? ", False, "hostkey"),
        ("Please type 'yes', 'no' or the fingerprint: ", False, "hostkey"),
        ("What is your quest? ", False, "other"),
    ],
)
def test_questions_are_told_apart(text: str, secret: bool, kind: str) -> None:
    assert classify(text, secret=secret) == kind


def test_the_last_jump_host_gets_the_ones_before_it_and_no_option_of_the_target() -> None:
    config = Config(identity="/k", ssh_options=("A=b",), ssh_config="/c")
    jump = jump_config(SshSettings.parse("proxyjump a,me@b:2"), config)
    assert jump == ("me@b:2", Config(ssh_options=("ProxyJump=a",), ssh_config="/c"))
    assert jump_config(SshSettings.parse("proxyjump b"), config) == ("b", Config(ssh_config="/c"))


@pytest.mark.parametrize("line", ["", "proxyjump none", "proxyjump %h-jump"])
def test_a_host_without_a_known_jump_host_has_none(line: str) -> None:
    assert jump_config(SshSettings.parse(line), Config()) is None


def test_equal_values_of_hosts_are_one_object_and_a_setting_may_have_several() -> None:
    first, second = (SshSettings.parse(f"HostName {name}\nsendenv A\nsendenv B\nport 22\n") for name in "ab")
    assert (first.get("hostname"), second.get("hostname"), first.all("sendenv")) == ("a", "b", ("A", "B"))
    assert first.all("sendenv") is second.all("sendenv")
    assert (first.get("user", "me"), first.all("user")) == ("me", ())
    assert first == SshSettings.parse("hostname a\nsendenv A\nsendenv B\nport 22")


def test_the_path_of_a_jump_hosts_master_is_quoted_for_the_shell_and_for_ssh() -> None:
    command = jump_command(Hop("ssh", "b"), "/run/a b%h/s")
    assert "-S '/run/a b%%h/s'" in command
    assert command.endswith("-W '[%h]:%p' -- b")


@pytest.mark.parametrize(
    ("text", "jump_path", "name"),
    [
        ("hostname a\nport 22", "", "a port 22"),
        ("hostname a\nport 22\nproxyjump j", "/s", "a port 22 via /s"),
        ("hostname a\nport 22\nproxyjump j,k", "", "jump host j"),
        ("hostname a\nport 22\nproxycommand nc %h", "", "proxy command nc %h"),
    ],
)
def test_logins_are_counted_by_the_server_that_is_contacted_first(text: str, jump_path: str, name: str) -> None:
    assert server_name(SshSettings.parse(text), jump_path) == name
