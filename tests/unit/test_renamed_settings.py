"""Each renamed setting: the old name does the same as the new one, warns, and is refused next to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from harness import Config
from harness.agent.models.profiles import models_of
from harness.agent.settings import agent_settings_of
from harness.errors import ConfigError
from harness.mcp.client.configuration import load_servers
from harness.mcp.server.main import server_settings_of
from harness.settings import (
    RENAMED,
    RENAMED_VALUES,
    CommandLineChoices,
    Settings,
    SettingsTable,
    load_settings,
    load_tables,
    user_config_path,
)
from harness.toolkit.catalog import tool_settings_of
from harness.toolkit.hooks.command import hooks_of
from harness.toolkit.permissions.rules.settings import settings_of
from harness.toolkit.web_settings import web_settings_of

VALUES = {
    "tmux_at": '"here"',
    "fresh_connection": "true",
    "job_log_limit": '"1MiB"',
    "targets.*.tmux_at": '"here"',
    "targets.*.fresh_connection": "true",
    "targets.*.job_log_limit": '"1MiB"',
    "agent.keep_conversations": '"90d"',
    "agent.conversations_size": '"256MiB"',
    "agent.compact_at": "0.5",
    "agent.on_job_end": '"tell"',
    "agent.turn_budget": "1.5",
    "agent.session_budget": "2.5",
    "agent.session_tokens": "1000",
    "models.*.context_limit": "32768",
    "models.*.max_output": "1024",
    "permissions.only": '["read_*"]',
    "permissions.secrets": '["!*.pem"]',
    "permissions.blocked": '["mkfs*"]',
    "permissions.timeout": "90",
    "permissions.aiexclude_seconds": "60",
    "tools.disabled": '["builtin:core"]',
    "tools.partial_read_counts": "true",
    "tools.profile": '"hex"',
    "tools.secrets": '["ticket-[0-9]+"]',
    "web.allow": '["wiki.lan"]',
    "web.credentials": '["api.example.com"]',
    "web.search.key_variable": '"HOME"',
    "hooks.*.*.malformed": '"deny"',
    "mcp.handoff": "20",
    "mcp.servers.*.pin": f'"sha256:{"0" * 64}"',
    "mcp.servers.*.max_message": "1048576",
}
"""A value for each old name, not its default."""

REQUIRED = {
    "targets": 'ssh = "host"\n',
    "models": 'provider = "openai"\nmodel = "m"\n',
    "mcp.servers": 'command = ["server"]\n',
    "hooks": 'command = "true"\n',
}
"""Further lines that a table needs."""


READERS: Mapping[str, Callable[[Sequence[SettingsTable]], object]] = {
    "agent": agent_settings_of,
    "models": models_of,
    "permissions": settings_of,
    "tools": tool_settings_of,
    "web": web_settings_of,
    "hooks": hooks_of,
    "mcp": server_settings_of,
}
"""What the program makes of a table of the toolkit or of the agent."""


def loaded(path: str, environ: Mapping[str, str], directory: Path) -> object:
    """What the program makes of the table that ``path`` is in."""
    top, _, rest = path.partition(".")
    if not rest:
        return load_settings(environ=environ, directory=directory).config
    if top == "targets":
        return load_settings(CommandLineChoices(target="name"), environ=environ, directory=directory).config
    if path.startswith("mcp.servers."):
        return load_servers(environ=environ, directory=directory)
    return READERS[top](load_tables(top, environ=environ, directory=directory))


class Home:
    """A user's settings file, and a directory that is not trusted."""

    def __init__(self, base: Path) -> None:
        self.environ = {"HOME": str(base)}
        self.user = user_config_path(self.environ)
        self.directory = base / "project"
        self.directory.mkdir()
        self.user.parent.mkdir(parents=True)

    def settings(self, **variables: str) -> Settings:
        return load_settings(environ=self.environ | variables, directory=self.directory)

    def loaded(self, path: str) -> object:
        return loaded(path, self.environ, self.directory)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def new_path(path: str) -> str:
    return ".".join([*path.split(".")[:-1], RENAMED[path]])


def new_value(path: str) -> str:
    return next(
        (f'"{new}"' for old, new in RENAMED_VALUES.get(path, {}).items() if f'"{old}"' == VALUES[path]), VALUES[path]
    )


def file_with(path: str, lines: str) -> str:
    """A settings file with ``lines`` in the table of ``path``."""
    parents = path.split(".")[:-1]
    required = next((text for table, text in REQUIRED.items() if path.startswith(f"{table}.")), "")
    names = [{"hooks": "post_tool"}.get(parents[0], "name") if part == "*" else part for part in parents]
    header = f"[[hooks.{names[1]}]]\n" if parents[:1] == ["hooks"] else f"[{'.'.join(names)}]\n" if names else ""
    return header + required + lines


def old_file(path: str) -> str:
    return file_with(path, f"{path.rpartition('.')[2]} = {VALUES[path]}\n")


def new_file(path: str) -> str:
    return file_with(path, f"{RENAMED[path]} = {new_value(path)}\n")


def test_every_renamed_setting_has_a_value_here() -> None:
    assert VALUES.keys() == RENAMED.keys()
    assert RENAMED_VALUES.keys() <= RENAMED.keys()


@pytest.mark.parametrize("path", RENAMED)
def test_the_old_name_does_what_the_new_one_does_and_warns(home: Home, path: str) -> None:
    home.user.write_text(file_with(path, ""))
    default = home.loaded(path)
    home.user.write_text(old_file(path))
    by_old_name = home.loaded(path)
    (warning,) = home.settings().warnings
    assert warning.startswith(f"{home.user}: ")
    assert all(name in warning for name in (path.rpartition(".")[2], "is deprecated: use", RENAMED[path]))
    home.user.write_text(new_file(path))
    assert home.loaded(path) == by_old_name != default
    assert home.settings().warnings == ()


@pytest.mark.parametrize("path", RENAMED)
def test_both_names_in_one_file_are_an_error_that_names_both(home: Home, path: str) -> None:
    old = path.rpartition(".")[2]
    home.user.write_text(file_with(path, f"{old} = {VALUES[path]}\n{RENAMED[path]} = {new_value(path)}\n"))
    with pytest.raises(ConfigError, match=rf"{old} and \S*{RENAMED[path]} are the same setting"):
        home.settings()
    with pytest.raises(ConfigError, match="are the same setting"):
        home.loaded(path)


@pytest.mark.parametrize("path", RENAMED)
def test_an_untrusted_directory_may_set_the_old_name_if_it_may_set_the_new_one(home: Home, path: str) -> None:
    outcomes = []
    for text in (old_file(path), new_file(path)):
        (home.directory / "harness.toml").write_text(text)
        try:
            outcomes.append(home.loaded(path))
        except ConfigError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("old", [path for path in RENAMED if "." not in path])
def test_a_variable_of_the_old_name_sets_the_new_one_and_warns(home: Home, old: str) -> None:
    new, value = f"HARNESS_{RENAMED[old].upper()}", new_value(old).strip('"')
    settings = home.settings(**{f"HARNESS_{old.upper()}": VALUES[old].strip('"')})
    assert settings.config == home.settings(**{new: value}).config != Config()
    assert dict(settings.origins)[RENAMED[old]] == new
    (warning,) = settings.warnings
    assert all(name in warning for name in (f"HARNESS_{old.upper()}", "is deprecated: use", new))
    with pytest.raises(ConfigError, match=f"HARNESS_{old.upper()} and {new} are the same setting"):
        home.settings(**{f"HARNESS_{old.upper()}": VALUES[old].strip('"'), new: value})


def test_an_error_in_a_value_names_the_new_setting(home: Home) -> None:
    home.user.write_text('tmux_at = "there"\n')
    with pytest.raises(ConfigError, match="tmux_host: 'there' is not 'auto' or 'target' or 'local'"):
        home.settings()


def test_the_new_name_in_a_later_file_wins_over_the_old_one(home: Home, tmp_path: Path) -> None:
    home.user.write_text("job_log_limit = 4096\n")
    (tmp_path / "more.toml").write_text("job_log_max_bytes = 8192\n")
    chosen = CommandLineChoices(config_file=str(tmp_path / "more.toml"))
    settings = load_settings(chosen, environ=home.environ, directory=home.directory)
    assert settings.config.job_log_max_bytes == 8192


def test_a_renamed_field_is_given_and_read_by_its_old_name_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match=r"Config\(tmux_at=...\) is deprecated, use tmux_host"):
        config = Config(tmux_at="here")  # type: ignore[call-arg] # the old name
    assert config == Config(tmux_host="local")
    with pytest.warns(DeprecationWarning, match="use job_log_max_bytes"):
        assert replace(config, job_log_limit=4096).job_log_max_bytes == 4096  # type: ignore[call-arg] # the old name
    with pytest.warns(DeprecationWarning, match="Config.fresh_connection is deprecated, use dedicated_connection"):
        assert config.fresh_connection is False  # type: ignore[attr-defined] # the old name
