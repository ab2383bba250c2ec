"""Settings: precedence, origins, mistakes, trust."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import harness
from harness.config import Config
from harness.errors import ConfigError, TargetNotFound
from harness.operate.template import DESCRIPTIONS, settings_template
from harness.settings import (
    SAFE_IN_PROJECTS,
    CommandLineChoices,
    Settings,
    load_settings,
    load_tables,
    user_config_path,
)
from harness.settings_schema import ENGINE_KEYS, GENERAL_KEYS, RANGES, TIMES, parse_size, with_unit
from harness.target import ExecTarget


class Place:
    """A home with a user's file, and a directory that may hold a harness.toml."""

    def __init__(self, base: Path) -> None:
        self.home = base / "home"
        self.here = base / "here"
        self.here.mkdir()
        self.environ = {"HOME": str(self.home)}

    def user(self, text: str) -> Path:
        path = user_config_path(self.environ)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def project(self, text: str) -> Path:
        path = self.here / "harness.toml"
        path.write_text(text)
        return path

    def load(self, choices: CommandLineChoices | None = None, **variables: str) -> Settings:
        return load_settings(choices, environ=self.environ | variables, directory=self.here)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_without_any_source_the_defaults_hold(place: Place) -> None:
    settings = place.load()
    assert settings.config == Config()
    assert str(settings.target) == "local:"
    assert settings.tmux is False
    assert set(dict(settings.origins).values()) == {"default"}


def test_a_deleted_current_directory_is_an_error_that_says_so(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted = tmp_path / "deleted"
    deleted.mkdir()
    monkeypatch.chdir(deleted)
    deleted.rmdir()
    with pytest.raises(ConfigError, match="the current directory cannot be used: no such file or directory"):
        load_settings(environ=place.environ)


def test_each_source_wins_over_the_ones_before_it(place: Place, tmp_path: Path) -> None:
    user = place.user('width = 101\nheight = 11\nsession = "u"\nmax_panes = 2\n')
    project = place.project('height = 12\nsession = "p"\nmax_panes = 3\n')
    extra = tmp_path / "extra.toml"
    extra.write_text('session = "e"\nmax_panes = 4\n')
    settings = place.load(CommandLineChoices(config_file=str(extra)), HARNESS_MAX_PANES="5")
    config, origins = settings.config, dict(settings.origins)
    assert (config.width, config.height, config.session, config.max_panes) == (101, 12, "e", 5)
    assert origins["width"] == str(user)
    assert origins["height"] == str(project)
    assert origins["session"] == str(extra)
    assert origins["max_panes"] == "HARNESS_MAX_PANES"
    assert settings.files == (str(user), str(project), str(extra))


def test_the_command_line_wins_over_everything(place: Place) -> None:
    place.user('tmux = "user"\nidentity = "~/key"\n')
    settings = place.load(CommandLineChoices(tmux="cli", identity="~/other"), HARNESS_TMUX="env", HARNESS_IDENTITY="/k")
    assert settings.tmux == "cli"
    assert settings.config.identity == os.path.expanduser("~/other")
    assert dict(settings.origins)["tmux"] == "command line"


def test_a_bare_tmux_keeps_the_name_that_the_settings_gave(place: Place) -> None:
    place.user('tmux = "named"\n')
    assert place.load(CommandLineChoices(tmux=True)).tmux == "named"
    assert place.load(CommandLineChoices(tmux=False)).tmux is False


def test_naming_a_pane_means_tmux(place: Place) -> None:
    assert place.load(CommandLineChoices(pane="build")).tmux is True
    assert place.load(CommandLineChoices(pane="build", tmux="work")).tmux == "work"
    assert place.load(HARNESS_PANE="build").tmux is False


def test_options_for_ssh_on_the_command_line_come_first_because_ssh_takes_the_first(place: Place) -> None:
    place.user('ssh_options = ["Port=1"]\n')
    assert place.load(CommandLineChoices(ssh_options=("Port=2",))).config.ssh_options == ("Port=2", "Port=1")


def test_a_named_target_brings_its_own_settings(place: Place) -> None:
    place.user(
        'ssh_engine = "asyncssh"\n[env]\nA = "1"\nB = "1"\n'
        '[targets.web1]\nssh = "deploy@web1:2222"\ntmux = true\nssh_engine = "openssh"\nenv = { B = "2" }\n'
        '[targets.app]\nssh = "web1"\ncontainer = "app"\nengine = "podman"\n'
        '[targets.db]\nurl = "ssh://db"\n'
    )
    settings = place.load(CommandLineChoices(target="web1"))
    assert str(settings.target) == "ssh://deploy@web1:2222"
    assert settings.tmux is True
    assert settings.config.ssh_engine == "openssh"
    assert dict(settings.config.env) == {"A": "1", "B": "2"}
    assert str(place.load(CommandLineChoices(target="app")).target) == "ssh://web1+podman://app"
    assert str(place.load(HARNESS_TARGET="db").target) == "ssh://db"
    assert dict(settings.targets)["db"] == "ssh://db"


def test_variables_win_over_a_named_target(place: Place) -> None:
    place.user('target = "w"\n[targets.w]\nssh = "w"\nwidth = 90\n')
    assert place.load().config.width == 90
    assert place.load(HARNESS_WIDTH="91").config.width == 91


def test_a_host_on_the_command_line_leaves_the_default_target_aside(place: Place) -> None:
    place.user('target = "w"\n[targets.w]\nssh = "w"\nwidth = 90\n')
    settings = place.load(CommandLineChoices(ssh="other"))
    assert str(settings.target) == "ssh://other"
    assert settings.config.width == Config().width


@pytest.mark.parametrize(
    ("choices", "url"),
    [
        (CommandLineChoices(ssh="web1"), "ssh://web1"),
        (CommandLineChoices(ssh="a@web1:22"), "ssh://a@web1:22"),
        (CommandLineChoices(ssh="ssh://a@web1"), "ssh://a@web1"),
        (CommandLineChoices(ssh="[::1]:2222"), "ssh://[::1]:2222"),
        (CommandLineChoices(container="app"), "container://app"),
        (CommandLineChoices(container="app", engine="podman"), "podman://app"),
        (CommandLineChoices(ssh="web1", container="app"), "ssh://web1+container://app"),
        (CommandLineChoices(target="local:"), "local:"),
    ],
)
def test_options_make_the_target(place: Place, choices: CommandLineChoices, url: str) -> None:
    assert str(place.load(choices).target) == url


@pytest.mark.parametrize(
    ("choices", "error", "words"),
    [
        (CommandLineChoices(target="a:", ssh="b"), ConfigError, "--target and --ssh contradict"),
        (CommandLineChoices(target="a:", container="b"), ConfigError, "--target and --container contradict"),
        (CommandLineChoices(engine="podman"), ConfigError, "--engine needs --container"),
        (CommandLineChoices(ssh="::1"), TargetNotFound, "[::1]"),
        (CommandLineChoices(ssh="-oProxyCommand=x"), TargetNotFound, "is not an SSH host"),
        (CommandLineChoices(ssh="a+docker://b"), TargetNotFound, "--container"),
        (CommandLineChoices(ssh=""), ConfigError, "--ssh was given an empty name"),
        (CommandLineChoices(container=""), ConfigError, "--container was given an empty name"),
        (CommandLineChoices(target=""), TargetNotFound, "no target is named ''"),
        (CommandLineChoices(target="wbe1"), TargetNotFound, "did you mean 'web1'?"),
        (CommandLineChoices(tmux="a:b"), ConfigError, "session name"),
        (CommandLineChoices(pane="p", tmux=False), ConfigError, "--pane and --no-tmux contradict"),
    ],
)
def test_contradictory_and_impossible_options_are_errors(
    place: Place, choices: CommandLineChoices, error: type[Exception], words: str
) -> None:
    place.user('[targets.web1]\nssh = "web1"\n')
    with pytest.raises(error) as caught:
        place.load(choices)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('sesion = "x"', ["'sesion'", "did you mean 'session'?"]),
        ("[targets.web1]\nssh_optons = []", ["targets.web1.ssh_optons", "did you mean 'ssh_options'?"]),
        ('width = "80"', ["width: '80' is not a whole number from 20 to 10000"]),
        ("width = 1", ["width", "20"]),
        ('ssh_engine = "putty"', ["ssh_engine", "openssh"]),
        ('connect_timeout = "soon"', ["connect_timeout: 'soon' is not a time from 0.1s to 1h"]),
        ("connect_timeout = 0", ["connect_timeout: 0 is not a time"]),
        ('job_log_max_bytes = "big"', ["job_log_max_bytes", "not a size"]),
        ("env = { A = 1 }", ["env.A"]),
        ('env = { "A-B" = "1" }', ["env", "A-B"]),
        ("tmux = 3", ["tmux"]),
        ('[targets."a:b"]\n', ["targets", "a:b"]),
        ("[targets.x]\nengine = 'docker'", ["engine needs container"]),
        ("[targets.x]\nurl = 'ssh://a'\nssh = 'b'", ["url and ssh contradict"]),
        ("width = ", ["invalid TOML"]),
        ("prompt_tag = 1", ["prompt_tag: 1 is not true or false"]),
        ("timeout = nan", ["timeout: nan is not a time"]),
        ('session = "a b"', ["session: 'a b' is not a session name"]),
    ],
)
def test_a_mistake_is_named_with_its_file_and_key(place: Place, text: str, words: list[str]) -> None:
    path = place.user(text)
    with pytest.raises(ConfigError) as caught:
        place.load()
    for word in [str(path), *words]:
        assert word in str(caught.value)


def test_values_of_environment_variables_are_not_repeated_in_errors(place: Place) -> None:
    place.user('env = { TOKEN = ["hunter2"] }')
    with pytest.raises(ConfigError) as caught:
        place.load()
    assert "hunter2" not in str(caught.value)


def test_durations_and_sizes_may_have_units(place: Place) -> None:
    place.user(
        'control_persist = "1h"\njobs_max_age = "2d"\njob_log_max_bytes = "64MiB"\n'
        'timeout = "10m"\nconnect_timeout = 5\n'
    )
    settings = place.load()
    assert settings.config.control_persist == 3600
    assert settings.config.jobs_max_age == 2 * 86400
    assert settings.config.job_log_max_bytes == 64 << 20
    assert settings.config.connect_timeout == 5
    assert settings.timeout == 600


@given(st.integers(0, 1 << 40), st.sampled_from([("", 0), ("k", 10), ("MiB", 20), ("GB", 30)]))
def test_sizes_are_powers_of_1024(number: int, unit: tuple[str, int]) -> None:
    assert parse_size(f"{number} {unit[0]}") == number << unit[1]


def test_variables_are_read_by_the_type_of_their_setting(place: Place) -> None:
    settings = place.load(
        HARNESS_TMUX="true",
        HARNESS_PROMPT_TAG="no",
        HARNESS_SSH_OPTIONS="ProxyJump=b 'Foo=a b'",
        HARNESS_ENV="A=1 B='x y'",
        HARNESS_CONTROL_PERSIST="5m",
        HARNESS_JOBS_MAX_BYTES="1g",
        HARNESS_CWD="/srv",
    )
    config = settings.config
    assert settings.tmux is True
    assert config.prompt_tag is False
    assert config.ssh_options == ("ProxyJump=b", "Foo=a b")
    assert config.env == (("A", "1"), ("B", "x y"))
    assert (config.control_persist, config.jobs_max_bytes, config.cwd) == (300, 1 << 30, "/srv")


@pytest.mark.parametrize(
    ("name", "value"),
    [("HARNESS_WIDTH", "wide"), ("HARNESS_PROMPT_TAG", "perhaps"), ("HARNESS_SSH_ENGINE", "x"), ("HARNESS_ENV", "A")],
)
def test_a_wrong_variable_is_an_error_that_names_it(place: Place, name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        place.load(**{name: value})


def test_a_misspelt_variable_is_a_warning_and_a_foreign_one_is_none(place: Place) -> None:
    settings = place.load(HARNESS_SSH_ENGIN="x", HARNESS_ACCOUNT_ID_OF_OTHERS="y", HARNESS_JOB="7")
    assert len(settings.warnings) == 1
    assert "HARNESS_SSH_ENGIN is not a setting" in settings.warnings[0]


@pytest.mark.parametrize("key", sorted({*ENGINE_KEYS, *GENERAL_KEYS} - SAFE_IN_PROJECTS))
def test_an_untrusted_directory_may_not_decide_what_runs_where(place: Place, key: str) -> None:
    values = {
        "env": '{ LD_PRELOAD = "x" }',
        "ssh_options": '["ProxyCommand=evil"]',
        "trusted_dirs": '["/"]',
        "ssh_engine": '"asyncssh"',
        "tmux_host": '"local"',
        "control_mode": '"never"',
        "keyboard_lock": "false",
        "dedicated_connection": "true",
        "control_persist": "1",
        "max_sessions": "9",
        "image_memory": '"1g"',
        "image_cpus": '"2"',
        "image_mounts": '["/:/host"]',
        "job_log_max_bytes": "4096",
        "jobs_max_bytes": "4096",
        "jobs_max_age": "1",
        "sudo_password_command": '["cat", "x"]',
        "sudo_password_max_age": "1",
        "announce": "false",
        "record": "true",
        "record_format": '"v3"',
        "record_input": "true",
        "record_max_bytes": "4096",
        "recordings_max_bytes": "4096",
        "recordings_max_age": "1",
    }
    place.project(f"{key} = {values.get(key, repr('x'))}\n")
    with pytest.raises(ConfigError) as caught:
        place.load()
    assert key in str(caught.value)
    assert "trusted_dirs" in str(caught.value)


def test_an_untrusted_directory_may_not_redefine_a_named_target(place: Place) -> None:
    place.user('[targets.prod]\nssh = "prod"\n')
    place.project('[targets.prod]\nssh = "evil"\n')
    with pytest.raises(ConfigError, match="targets may choose hosts"):
        place.load(CommandLineChoices(target="prod"))


@pytest.mark.parametrize("trusted", ["{here}", "{parent}/*"])
def test_a_trusted_directory_may_hold_any_key(place: Place, trusted: str) -> None:
    name = trusted.format(here=place.here, parent=place.here.parent)
    place.user(f'trusted_dirs = ["{name}"]\n')
    place.project('target = "ssh://web1"\n')
    assert str(place.load().target) == "ssh://web1"


def test_a_sibling_of_a_trusted_directory_is_not_trusted(place: Place) -> None:
    place.user(f'trusted_dirs = ["{place.here}x", "{place.here}/*"]\n')
    place.project('target = "ssh://web1"\n')
    with pytest.raises(ConfigError):
        place.load()


def test_a_file_that_every_user_can_write_is_refused(place: Place) -> None:
    path = place.user("width = 100\n")
    path.chmod(0o666)
    with pytest.raises(ConfigError, match="every user"):
        place.load()


def test_a_pipe_named_harness_toml_does_not_hang(place: Place) -> None:
    os.mkfifo(place.here / "harness.toml")
    with pytest.raises(ConfigError, match="not a regular file"):
        place.load()


def test_naming_the_project_file_with_config_trusts_it(place: Place) -> None:
    path = place.project('target = "ssh://web1"\n')
    assert str(place.load(CommandLineChoices(config_file=str(path))).target) == "ssh://web1"


def test_a_missing_config_file_is_an_error(place: Place) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        place.load(CommandLineChoices(config_file=str(place.here / "none.toml")))


def test_every_engine_setting_is_described_in_the_template() -> None:
    assert set(DESCRIPTIONS) == {*ENGINE_KEYS, *GENERAL_KEYS}
    assert {item.name for item in fields(Config)} == {*ENGINE_KEYS, "exec_targets"}


@pytest.mark.parametrize("project", [False, True])
def test_the_template_is_valid_as_it_is_and_with_every_key_set(place: Place, project: bool) -> None:
    text = settings_template(project=project)
    write = place.project if project else place.user
    write(text)
    assert place.load().config == Config()
    lines = [
        line.removeprefix("# ")
        for line in text.splitlines()
        if " = " in line or line.startswith(("# [targets", "# [models"))
    ]
    write("\n".join(line for line in lines if not line.startswith("#")))
    settings = place.load()
    expected = SAFE_IN_PROJECTS if project else {*ENGINE_KEYS, *GENERAL_KEYS}
    assert {key for key, origin in settings.origins if origin != "default"} == expected


def test_load_config_is_public(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("width = 99\n")
    assert harness.load_config(path).width == 99


@pytest.mark.parametrize(
    ("variable", "text", "said"),
    [
        ("HARNESS_MAX_PANES", "x", "'x' is not a whole number from 1 to 1000"),
        ("HARNESS_MAX_PANES", "0", "0 is not a whole number from 1 to 1000"),
        ("HARNESS_MAX_PANES", "", "'' is not a whole number from 1 to 1000"),
        ("HARNESS_WIDTH", "1e3", "'1e3' is not a whole number from 20 to 10000"),
        ("HARNESS_TIMEOUT", "-1", "'-1' is not a time from 0.1s to 366d: seconds, or 500ms, 30s, 10m, 1h, 1d"),
        ("HARNESS_TIMEOUT", "nan", "'nan' is not a time from 0.1s to 366d: seconds, or 500ms, 30s, 10m, 1h, 1d"),
        ("HARNESS_TIMEOUT", "0", "0 is not a time from 0.1s to 366d: seconds, or 500ms, 30s, 10m, 1h, 1d"),
        ("HARNESS_JOBS_MAX_BYTES", "1", "1 is not a size from 1KiB to 1PiB: bytes, or 64k, 256MiB, 2G"),
        ("HARNESS_PROMPT_TAG", "maybe", "'maybe' is not true or false"),
        ("HARNESS_TMUX_HOST", "there", "'there' is not 'auto' or 'target' or 'local'"),
        ("HARNESS_SESSION", "a:b", "'a:b' is not a session name: up to 48 letters, digits, '-' and '_', no first '-'"),
        ("HARNESS_SSH_OPTIONS", "'", '"\'" is not words, quoted as in a shell'),
        ("HARNESS_ENV", "hunter2", "this is not NAME=VALUE words, quoted as in a shell"),
    ],
)
def test_a_wrong_variable_is_one_line_with_what_is_allowed(place: Place, variable: str, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        place.load(**{variable: text})
    assert str(caught.value) == f"{variable}: {said}"


def test_every_number_has_bounds_that_its_default_keeps() -> None:
    limits: dict[str, tuple[float, float]] = {**RANGES, **TIMES}
    numbers = {item.name: getattr(Config(), item.name) for item in fields(Config) if item.type in ("int", "float")}
    assert set(numbers) <= set(limits)
    for name, value in numbers.items():
        assert limits[name][0] <= value <= limits[name][1], name


def test_tables_of_the_toolkit_are_left_to_it_with_their_file_and_its_trust(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    user = home / ".config/harness/config.toml"
    user.parent.mkdir(parents=True)
    project.mkdir()
    user.write_text('session = "mine"\n[permissions]\nmode = "auto"\n')
    (project / "harness.toml").write_text('[permissions]\nmode = "strict"\n')
    env = {"HOME": str(home)}
    assert load_settings(environ=env, directory=project).config.session == "mine"
    tables = load_tables("permissions", environ=env, directory=project)
    assert [(table.values, table.trusted) for table in tables] == [
        ({"mode": "auto"}, True),
        ({"mode": "strict"}, False),
    ]
    user.write_text(f"trusted_dirs = ['{project}']\n")
    assert [table.trusted for table in load_tables("permissions", environ=env, directory=project)] == [True]
    user.write_text("permissions = 3\n")
    with pytest.raises(ConfigError, match="permissions is not a table"):
        load_tables("permissions", environ=env, directory=project)


def test_harness_run_has_no_time_limit_by_default(place: Place) -> None:
    assert place.load().timeout is None


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("connect_timeout", 15.0, "15s"),
        ("connect_timeout", 90.5, "90.5s"),
        ("control_persist", 0.0, "0s"),
        ("control_persist", 600.0, "10m"),
        ("control_persist", 90.0, "90s"),
        ("jobs_max_age", 14 * 86400.0, "14d"),
        ("job_log_max_bytes", 256 << 20, "256MiB"),
        ("job_log_max_bytes", 1500, "1500 bytes"),
        ("width", 150, "150 columns"),
        ("keepalive_interval", 5, "5 s"),
    ],
)
def test_numbers_are_shown_with_their_unit(name: str, value: float, shown: str) -> None:
    assert with_unit(name, value) == shown


def test_a_table_with_a_program_is_a_target(place: Place) -> None:
    place.user(
        '[targets.stage]\nexec = ["lxc", "exec", "stage", "--", "{argv}"]\ntmux = true\n'
        '[targets.far]\nssh = "web1"\nexec = ["enter", "{command}"]\nexec_terminal = ["enter", "-t", "{command}"]\n'
    )
    settings = place.load(CommandLineChoices(target="stage"))
    assert (str(settings.target), settings.tmux) == ("exec://stage", True)
    assert str(place.load(CommandLineChoices(target="far")).target) == "ssh://web1+exec://far"
    assert dict(settings.config.exec_targets) == {
        "stage": ExecTarget(("lxc", "exec", "stage", "--", "{argv}")),
        "far": ExecTarget(("enter", "{command}"), ("enter", "-t", "{command}")),
    }
    assert dict(settings.targets) == {"stage": "exec://stage", "far": "ssh://web1+exec://far"}
    assert dict(settings.target_settings) == {"stage": ("tmux",), "far": ()}


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('exec = ["a"]', "exec needs {argv} or {command} once"),
        ("exec = []", "exec names no program"),
        ('exec = "a {argv}"', "not a list of strings"),
        ('exec = ["a", "{argv}"]\nurl = "ssh://b"', "url and exec contradict each other"),
        ('exec = ["a", "{argv}"]\ncontainer = "b"', "container and exec contradict each other"),
        ('exec_terminal = ["a", "{argv}"]', "exec_terminal needs exec"),
    ],
)
def test_a_wrong_program_of_a_target_is_an_error_with_its_table(place: Place, table: str, said: str) -> None:
    place.user(f"[targets.stage]\n{table}\n")
    with pytest.raises(ConfigError) as caught:
        place.load()
    assert said in caught.value.message
    assert "stage" in caught.value.message


def test_a_project_that_is_not_trusted_defines_no_program(place: Place) -> None:
    place.project('[targets.stage]\nexec = ["touch", "/tmp/x", "{argv}"]\n')
    with pytest.raises(ConfigError, match="may choose hosts or run programs"):
        place.load()


def test_an_inaccessible_settings_file_is_one_line(tmp_path: Path) -> None:
    directory = tmp_path / ("x" * 300)  # as one of another user, for any user
    with pytest.raises(ConfigError, match=r"config\.toml: file name too long") as caught:
        load_settings(environ={"XDG_CONFIG_HOME": str(directory)}, directory=tmp_path)
    assert "accessible" in caught.value.hint
