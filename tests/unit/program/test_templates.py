"""Which words start a command through a program."""

from __future__ import annotations

import subprocess

import pytest

from harness import Target, TargetNotFound
from harness.config import Config
from harness.discovery import _names
from harness.errors import ConfigError
from harness.target import ExecTarget
from harness_backends.program.templates import TEMPLATES, find_template

ARGV = ["sh", "-c", "echo it's $HOME"]


def words(url: str, *, terminal: bool = False) -> list[str]:
    return find_template(Target.parse(url), Config()).fill(["ID"], terminal=terminal)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("k8s://shop/cart-0", "kubectl exec -i --namespace=shop cart-0 -- ID"),
        ("k8s://shop/cart-0/web", "kubectl exec -i --namespace=shop cart-0 --container=web -- ID"),
        ("k8s://prod/shop/cart-0/web", "kubectl --context=prod exec -i --namespace=shop cart-0 --container=web -- ID"),
        ("k8s://prod/shop/cart-0/", "kubectl --context=prod exec -i --namespace=shop cart-0 -- ID"),
        ("k8s://admin@kind/shop/a/", "kubectl --context=admin@kind exec -i --namespace=shop a -- ID"),
        (
            "k8s://arn:aws:eks:x:1:cluster%2Fa/shop/a/",
            "kubectl --context=arn:aws:eks:x:1:cluster/a exec -i --namespace=shop a -- ID",
        ),
        ("lxc://stage", "lxc exec stage --mode=non-interactive -- ID"),
        ("incus://far%3Astage", "incus exec far:stage --mode=non-interactive -- ID"),
        ("nspawn://deb", "systemd-run --machine=deb --uid=root --quiet --collect --wait --pipe -- ID"),
        ("nspawn://app@deb", "systemd-run --machine=deb --uid=app --quiet --collect --wait --pipe -- ID"),
        ("nsenter://123", "nsenter --target=123 --all -- ID"),
        ("chroot:///srv/a%20b", "chroot|/srv/a b|ID"),
        ("wsl://Debian", "wsl.exe -d Debian --exec ID"),
        ("wsl://me@Debian", "wsl.exe -d Debian -u me --exec ID"),
        ("adb://emulator-5554", "adb|-s|emulator-5554|shell|-T|exec ID"),
        ("adb://10.0.0.7:5555", "adb|-s|10.0.0.7:5555|shell|-T|exec ID"),
        ("gcloud://vm", "gcloud|compute|ssh|vm|--quiet|--command=exec ID|--|-T"),
        ("gcloud://p/z/vm", "gcloud|compute|ssh|vm|--zone=z|--project=p|--quiet|--command=exec ID|--|-T"),
        ("vagrant://default", "vagrant|ssh|default|--no-tty|-c|exec ID"),
    ],
)
def test_the_words_of_a_shipped_template(url: str, expected: str) -> None:
    assert words(url) == expected.split("|" if "|" in expected else " ")
    assert str(Target.parse(url)) == url.replace("%3A", ":")
    assert "ID" in " ".join(words(url, terminal=True))


def test_a_terminal_has_other_words_where_the_program_needs_them() -> None:
    assert words("k8s://shop/a", terminal=True) == ["kubectl", "exec", "-i", "-t", "--namespace=shop", "a", "--", "ID"]
    assert words("adb://x", terminal=True) == ["adb", "-s", "x", "shell", "-t", "exec ID"]
    assert words("chroot:///x", terminal=True) == words("chroot:///x")


def test_every_template_has_an_entry_point() -> None:
    found = {name for name, value in _names().items() if value == "harness_backends.program:open_backend"}
    assert found == {*TEMPLATES, "exec"}


@pytest.mark.parametrize(
    "url",
    [
        "k8s://shop",
        "k8s://a/b/c/d/e",
        "k8s://shop//web",
        "k8s://shop/-oops",
        "k8s://shop/deployment%2Fweb",
        "k8s://shop/a b",
        "lxc://-all",
        "lxc://a/b",
        "nsenter://self",
        "nsenter://root@1",
        "chroot://relative",
        "gcloud://a/b/c/d",
        "gcloud://p/z/",
        "vagrant://root@default",
        "wsl://Debian:22",
        "exec://unknown",
        "chroot:///srv/a%00b",
        "chroot:///srv/%FF",
        "chroot:///srv/%7Bcommand%7D",
        "k8s://{command}/shop/a/",
        "k8s://a%0Ab/shop/a/",
        "gcloud://{command}/vm",
        "nsenter://\u0663",
        "nsenter://012",
        "chroot:///srv/a/../b",
        "nspawn://a%0Ab@deb",
    ],
)
def test_a_url_that_its_program_cannot_take_is_refused(url: str) -> None:
    with pytest.raises(TargetNotFound):
        words(url)


def test_a_program_of_the_settings_is_found_by_its_name() -> None:
    target = ExecTarget(("enter", "--now", "{argv}"), ("enter", "-t", "--run={command}"))
    template = find_template(Target.parse("ssh://web1+exec://stage"), Config(exec_targets=(("stage", target),)))
    assert template.fill(["a b", ""]) == ["enter", "--now", "a b", ""]
    assert template.fill(["a", "b"], terminal=True) == ["enter", "-t", "--run=exec a b"]


def test_variables_that_systemd_expands_arrive_as_they_were() -> None:
    template = find_template(Target.parse("nspawn://deb"), Config())
    assert template.fill(["$$ ${A}"])[-1] == "$$$$ $${A}"


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_command_in_one_text_is_read_as_it_was_by_a_shell(shell: str) -> None:
    template = find_template(
        Target.parse("exec://x"), Config(exec_targets=(("x", ExecTarget((shell, "-c", "{command}"))),))
    )
    done = subprocess.run(template.fill(["printf", "<%s>", *ARGV, "", "a\nb"]), capture_output=True, text=True)
    assert done.stdout == "<sh><-c><echo it's $HOME><><a\nb>"


@pytest.mark.parametrize(
    ("argv", "terminal", "said"),
    [
        ((), (), "exec names no program"),
        (("",), (), "exec names no program"),
        (("{argv}",), (), "exec names no program"),
        (("a",), (), "exec needs {argv} or {command} once"),
        (("a", "{argv}", "{argv}"), (), "exec needs {argv} or {command} once"),
        (("a", "{argv}", "{command}"), (), "exec needs {argv} or {command} once"),
        (("a", "-c={argv}"), (), "exec: {argv} is a word of its own"),
        (("a", "{argv}"), ("a", "-t"), "exec_terminal needs {argv} or {command} once"),
    ],
)
def test_a_program_without_one_place_for_the_command_is_refused(
    argv: tuple[str, ...], terminal: tuple[str, ...], said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        ExecTarget(argv, terminal)
    assert said in caught.value.message
