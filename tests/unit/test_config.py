"""The engine's settings: their defaults are promises, and the value is frozen."""

from __future__ import annotations

import dataclasses

import pytest

from harness import Config


def test_the_defaults_are_those_that_the_documentation_states() -> None:
    config = Config()
    assert (config.session, config.tmux_socket, config.tmux_host) == ("harness", "harness", "auto")
    assert (config.max_sessions, config.max_panes) == (1, 5)
    assert (config.ssh_engine, config.control_persist) == ("default", 600.0)
    assert config.keepalive_interval * config.keepalive_count <= 15
    assert config.prompt_tag
    assert config.keyboard_lock
    assert not config.dedicated_connection


def test_settings_are_frozen_comparable_and_hashable() -> None:
    config = Config()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.session = "x"  # type: ignore[misc]  # the point of the test
    assert config == Config()
    assert hash(config) == hash(Config())
    assert dataclasses.replace(config, session="x") != config


def test_no_setting_can_hold_a_secret() -> None:
    about = {"sudo_password_command", "sudo_password_max_age"}  # where a password comes from, and for how long
    names = {item.name for item in dataclasses.fields(Config)} - about
    assert not [name for name in names if any(word in name for word in ("password", "passphrase", "secret", "token"))]
