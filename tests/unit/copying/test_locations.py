"""The arguments of a copy: which name a host, and which are paths of this machine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.copying import Location, parse_location
from harness.copying.locations import path_on_target


@pytest.mark.parametrize(
    ("text", "host", "path"),
    [
        ("a", None, "a"),
        ("./a:b", None, "./a:b"),
        ("/a:b", None, "/a:b"),
        ("dir/a:b", None, "dir/a:b"),
        ("local:a:b", None, "a:b"),
        ("local:", None, "."),
        ("web1:a", "web1", "a"),
        ("web1:", "web1", "."),
        ("root@web1:/etc/a b", "root@web1", "/etc/a b"),
        ("web1:a:b", "web1", "a:b"),
        ("[::1]:/x", "[::1]", "/x"),
        ("me@[2001:db8::1]:2222:x", "me@[2001:db8::1]:2222", "x"),
        (":/etc/hosts", "", "/etc/hosts"),
        (":", "", "."),
        ("ssh://me@web1:2222:/x", "ssh://me@web1:2222", "/x"),
        ("ssh://web1+docker://app:/x:y", "ssh://web1+docker://app", "/x:y"),
        ("docker://app:", "docker://app", "."),
        ("k8s://prod/ns/pod/app:~/x", "k8s://prod/ns/pod/app", "~/x"),
        ("-x", None, "-x"),
        ("web1:a\nb\udcff", "web1", "a\nb\udcff"),
        ("a\nb:c", "a\nb", "c"),
    ],
)
def test_a_colon_before_the_first_slash_ends_a_host(text: str, host: str | None, path: str) -> None:
    assert parse_location(text) == Location(path, host)


@pytest.mark.parametrize("text", ["", "a\0b", "ssh://web1", "ssh://web1/etc", "ssh://web1:2222"])
def test_what_has_no_path_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="path"):
        parse_location(text)


@given(st.text(st.characters(exclude_characters="\0"), min_size=1))
def test_a_path_with_a_leading_dot_is_always_here(name: str) -> None:
    assert parse_location(f"./{name}") == Location(f"./{name}")
    assert path_on_target(Location(f"./{name}")).endswith(f"/./{name}")
    assert path_on_target(Location(name, "web1")) == name
