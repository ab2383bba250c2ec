"""Target URLs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import Hop, Target, TargetNotFound
from harness.target import mask_password


@pytest.mark.parametrize(
    ("text", "hops"),
    [
        ("local:", [Hop("local")]),
        ("ssh://web1", [Hop("ssh", "web1")]),
        ("ssh://deploy@web1", [Hop("ssh", "web1", "deploy")]),
        ("ssh://deploy@web1:2222", [Hop("ssh", "web1", "deploy", 2222)]),
        ("ssh://web1/", [Hop("ssh", "web1")]),
        ("ssh:web1", [Hop("ssh", "web1")]),
        ("ssh://10.0.0.1:22", [Hop("ssh", "10.0.0.1", None, 22)]),
        ("ssh://root@[::1]:2222", [Hop("ssh", "::1", "root", 2222)]),
        ("ssh://[fe80::1%eth0]", [Hop("ssh", "fe80::1%eth0")]),
        ("docker://app", [Hop("docker", "app")]),
        ("ssh://web1+docker://app", [Hop("ssh", "web1"), Hop("docker", "app")]),
        ("k8s://shop/cart-0", [Hop("k8s", "shop/cart-0")]),
        ("k8s://me@kind/shop/cart-0/", [Hop("k8s", "me@kind/shop/cart-0/")]),
        ("ssh://web1+chroot:///srv/root", [Hop("ssh", "web1"), Hop("chroot", "/srv/root")]),
        ("lxc://far:stage", [Hop("lxc", "far:stage")]),
        ("exec://stage", [Hop("exec", "stage")]),
        ("ssh://a@b:1+ssh://c+podman://d", [Hop("ssh", "b", "a", 1), Hop("ssh", "c"), Hop("podman", "d")]),
    ],
)
def test_a_target_is_a_chain_of_hops(text: str, hops: list[Hop]) -> None:
    target = Target.parse(text)
    assert list(target.hops) == hops
    assert Target.parse(str(target)) == target


@pytest.mark.parametrize(
    "text",
    [
        "",
        "web1",
        "ssh://",
        "ssh://@web1",
        "ssh://web1:0",
        "ssh://web1:65536",
        "ssh://web1:99999999",
        "ssh://web1:x",
        "ssh://-oProxyCommand=x",
        "ssh://-l@web1",
        "ssh://web1+",
        "+ssh://web1",
        "ssh://web1++docker://app",
        "SSH://web1",
        "ssh://a@b@c",
        "ssh://web1/path",
        "docker://",
        "docker://a/b",
        "k8s://",
        "k8s://-n/pod",
        "k8s:shop/pod",
        "chroot:///srv/a b",
        "ssh://web1 ",
        "ssh://web1\n",
    ],
)
def test_what_is_no_target_is_refused_with_a_hint_or_a_reason(text: str) -> None:
    with pytest.raises(TargetNotFound) as caught:
        Target.parse(text)
    assert repr(text) in str(caught.value) or caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "ssh://root:secret@h01",
        "ssh:root:secret@h01",
        "ssh://root:sec@ret@h01:22",
        "ssh://root:se/cret@h01",
        "ssh://root:secret@h01:x",
        "ssh://a+ssh://root:secret@h01",
        "ssh://:secret@h01",
    ],
)
def test_a_password_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(TargetNotFound, match="holds a password") as caught:
        Target.parse(text)
    assert "cret" not in str(caught.value)
    assert "h01" in str(caught.value)


def test_the_user_and_group_of_a_container_are_no_password() -> None:
    assert Target.parse("docker://1000:1000@app").last == Hop("docker", "app", "1000:1000")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ssh://root:secret@h01", "ssh://root:***@h01"),
        ("root:secret@h01", "root:***@h01"),
        ("ssh://root@h01:22+docker://u@app", "ssh://root@h01:22+docker://u@app"),
        ("root@[::1]:22,a:22,b@c", "root@[::1]:22,a:22,b@c"),
    ],
)
def test_a_password_is_masked(text: str, shown: str) -> None:
    assert mask_password(text) == shown


def test_a_target_passes_through_parse_unchanged() -> None:
    target = Target.parse("ssh://web1")
    assert Target.parse(target) is target


def test_the_last_hop_chooses_the_backend_and_the_base_is_what_it_runs_on() -> None:
    target = Target.parse("ssh://web1+docker://app")
    assert target.last == Hop("docker", "app")
    assert target.base == Target.parse("ssh://web1")
    assert Target.parse("local:").base is None


@given(st.text(max_size=40))
def test_parsing_either_works_and_round_trips_or_is_refused(text: str) -> None:
    try:
        target = Target.parse(text)
    except TargetNotFound:
        return
    assert Target.parse(str(target)) == target
