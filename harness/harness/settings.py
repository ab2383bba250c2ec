"""Settings from files, the environment and the command line, merged with the origin of each value.

Later sources in this list win: built-in defaults; the user's file (``$XDG_CONFIG_HOME/harness/config.toml``);
``./harness.toml``; the file of ``--config``; the chosen ``[targets.NAME]`` table; ``HARNESS_*`` variables; the command
line. Each source is validated separately, so that an error names its file and key.

``./harness.toml`` may come from another author. Unless the user's file lists the directory in ``trusted_dirs``, it may
only contain :data:`SAFE_IN_PROJECTS`: nothing that runs programs, chooses a host, or changes what a command sees. Any
other key there is an error, because ignoring ``target`` would run a command on the wrong host.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from .config import Config
from .deprecated_names import renamed_fields, renamed_names
from .errors import ConfigError, TargetNotFound
from .settings_schema import ENGINE_KEYS, GENERAL_KEYS, check_name, parse_variable, suggest, validate
from .system.account import expand_home, home_directory
from .target import EXEC_SCHEME, ExecTarget, Target, mask_password
from .terminal import CURRENT_TMUX

if not TYPE_CHECKING:
    __getattr__ = renamed_names(__name__, Choices="CommandLineChoices")

__all__ = [
    "DEFAULT_ORIGIN",
    "PROJECT_FILE",
    "RENAMED",
    "RENAMED_VALUES",
    "SAFE_IN_PROJECTS",
    "TOOLKIT_TABLES",
    "CommandLineChoices",
    "Settings",
    "SettingsTable",
    "is_trusted",
    "load_config",
    "load_settings",
    "load_tables",
    "user_config_path",
]


# -- Old names.

_ENGINE = {
    "tmux_at": "tmux_host",
    "fresh_connection": "dedicated_connection",
    "job_log_limit": "job_log_max_bytes",
}

RENAMED: Mapping[str, str] = {
    **_ENGINE,
    **{f"targets.*.{old}": new for old, new in _ENGINE.items()},
    "agent.keep_conversations": "conversations_max_age",
    "agent.conversations_size": "conversations_max_bytes",
    "agent.compact_at": "compaction_threshold",
    "agent.on_job_end": "on_job_exit",
    "agent.turn_budget": "turn_budget_usd",
    "agent.session_budget": "conversation_budget_usd",
    "agent.session_tokens": "conversation_max_tokens",
    "models.*.context_limit": "context_window",
    "models.*.max_output": "max_output_tokens",
    "permissions.only": "allowed_tools",
    "permissions.secrets": "secret_paths",
    "permissions.blocked": "blocked_commands",
    "permissions.timeout": "approval_timeout",
    "permissions.aiexclude_seconds": "aiexclude_cache_seconds",
    "tools.disabled": "disabled_plugins",
    "tools.partial_read_counts": "allow_overwrite_after_partial_read",
    "tools.profile": "tool_profile",
    "tools.secrets": "redact_patterns",
    "web.allow": "allowed_hosts",
    "web.credentials": "credential_hosts",
    "web.search.key_variable": "api_key_env",
    "hooks.*.*.malformed": "on_invalid_output",
    "mcp.handoff": "job_handoff_seconds",
    "mcp.servers.*.pin": "program_sha256",
    "mcp.servers.*.max_message": "max_message_bytes",
}
"""Path of the old key → its new name in the same table; ``*`` is any key of a table and any entry of a list."""

_TMUX_HOSTS = {"here": "local"}
RENAMED_VALUES: Mapping[str, Mapping[str, str]] = {
    "tmux_at": _TMUX_HOSTS,
    "targets.*.tmux_at": _TMUX_HOSTS,
    "agent.on_job_end": {"wake": "start_turn", "tell": "next_turn"},
}
"""Path of the old key → its old values and the new ones."""


def rename_settings(values: MutableMapping[str, Any], origin: str) -> tuple[str, ...]:
    """Replace the old names and values in one file by the new ones.

    Args:
        values: everything that the file holds; it is changed.
        origin: the file, for messages.

    Returns:
        A warning for each old name.

    Raises:
        ConfigError: A table has both names of a setting.
    """
    found = []
    for path, new in RENAMED.items():
        *parents, old = path.split(".")
        for place, table in _tables(values, parents, ""):
            if old in table:
                if new in table:
                    raise both_given(f"{origin}: {place}{old}", place + new)
                given = table.pop(old)
                table[new] = _new_value(path, given)
                changed = table[new] != given
                found.append(
                    f"{origin}: {_written(place + old, given, changed)} is deprecated: "
                    f"use {_written(place + new, table[new], changed)}"
                )
    return tuple(found)


def rename_variable(name: str, text: str) -> tuple[str, str]:
    """Return the new name and value of a setting that an environment variable sets; unchanged if it is not renamed."""
    return RENAMED.get(name, name), _new_value(name, text)


def _tables(value: Any, parents: list[str], place: str) -> Iterator[tuple[str, MutableMapping[str, Any]]]:
    """Yield the tables at a path, each with the path to write before a key of it."""
    if not parents:
        if isinstance(value, dict):
            yield place, value
        return
    name, *rest = parents
    if isinstance(value, list) and name == "*":
        for entry in value:
            yield from _tables(entry, rest, place)
    elif isinstance(value, dict):
        for key in list(value) if name == "*" else [name] if name in value else []:
            yield from _tables(value[key], rest, f"{place}{key}.")


def _new_value(path: str, value: Any) -> Any:
    return RENAMED_VALUES.get(path, {}).get(value, value) if isinstance(value, str) else value


def _written(name: str, value: Any, with_value: bool) -> str:
    return f'{name} = "{value}"' if with_value else name


def both_given(old: str, new: str) -> ConfigError:
    """Return the error for a setting that is given by both of its names."""
    return ConfigError(f"{old} and {new} are the same setting", hint="remove the old name, which is the first")


# -- Settings.


PROJECT_FILE = "harness.toml"
DEFAULT_ORIGIN = "default"
COMMAND_LINE = "command line"
ENVIRONMENT = "environment"
PREFIX = "HARNESS_"
NOT_SETTINGS = frozenset({"JOB", "CONFIG", "MODEL"})
"""HARNESS_JOB is set for commands of harness, HARNESS_CONFIG is ``--config``, HARNESS_MODEL is the agent's model."""

SAFE_IN_PROJECTS = frozenset(
    {
        "connect_timeout",
        "height",
        "history_limit",
        "keepalive_count",
        "keepalive_interval",
        "login_timeout",
        "max_channels",
        "max_panes",
        "pane",
        "prompt_tag",
        "prompt_timeout",
        "session",
        "timeout",
        "tmux",
        "width",
    }
)
"""The keys that ``./harness.toml`` may contain in an untrusted directory."""


@renamed_fields(fresh_connection="dedicated_connection")
@dataclass(frozen=True, slots=True)
class CommandLineChoices:
    """The choices of the command line; None and empty mean not given."""

    config_file: str | None = None
    target: str | None = None
    ssh: str | None = None
    container: str | None = None
    engine: str | None = None
    image: str | None = None
    image_memory: str | None = None
    image_cpus: str | None = None
    image_network: str | None = None
    image_mounts: tuple[str, ...] = ()
    tmux: bool | str | None = None
    pane: str | None = None
    ssh_options: tuple[str, ...] = ()
    ssh_config: str | None = None
    identity: str | None = None
    connect_timeout: float | None = None
    dedicated_connection: bool | None = None
    record: bool | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """The merged settings; ``origins`` names the file, variable or option of each setting."""

    config: Config
    target: Target
    tmux: bool | str = False
    pane: str | None = None
    timeout: float | None = None
    """Maximum wait of ``harness run`` for a command in seconds; None for no limit."""
    trusted_dirs: tuple[str, ...] = ()
    targets: tuple[tuple[str, str], ...] = ()
    """Named targets and their URLs."""
    target_settings: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Named targets with the names of the settings in their tables that do not only say where they are."""
    files: tuple[str, ...] = ()
    """The settings files that were read."""
    tables: frozenset[str] = frozenset()
    """Those of :data:`TOOLKIT_TABLES` that the files have."""
    origins: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()


LOCATION_KEYS = frozenset({"url", "ssh", "container", "engine", "exec", "exec_terminal"})
"""The keys of a table ``[targets.NAME]`` that say where the target is."""
TOOLKIT_TABLES = frozenset({"agent", "audit", "hooks", "mcp", "models", "notifications", "permissions", "tools", "web"})
"""Tables of the same files for the toolkit and the agent, which read them with :func:`load_tables` on start."""


class SettingsTable(NamedTuple):
    """One of :data:`TOOLKIT_TABLES` in one file, not validated; unless ``trusted``, it may only be stricter."""

    origin: str
    values: Mapping[str, Any]
    trusted: bool = True

    def check_trusted(self, what: str) -> None:
        """Refuse what only trusted files may set.

        Raises:
            ConfigError: The file is not trusted.
        """
        if not self.trusted:
            raise ConfigError(
                f"{self.origin}: {what} may only be set by files that are trusted",
                hint="add the directory to trusted_dirs in your own settings, or set it there",
            )


class _Layer(NamedTuple):
    origin: str
    values: Mapping[str, Any] = MappingProxyType({})
    targets: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    tables: Mapping[str, Any] = MappingProxyType({})
    trusted: bool = True
    warnings: tuple[str, ...] = ()


def user_config_path(environ: Mapping[str, str] | None = None) -> Path:
    """Return the path of the user's settings, whether or not the file exists."""
    env = os.environ if environ is None else environ
    home = env.get("XDG_CONFIG_HOME", "")
    base = Path(home) if home.startswith("/") else home_directory(env) / ".config"
    return base / "harness" / "config.toml"


def load_config(file: str | os.PathLike[str] | None = None) -> Config:
    """Load the engine's settings from the user's file, ``./harness.toml``, ``file`` and ``HARNESS_*`` variables.

    Raises:
        ConfigError: A file cannot be read, a key is unknown or a value is invalid.
    """
    return load_settings(CommandLineChoices(config_file=os.fspath(file) if file is not None else None)).config


def load_settings(
    choices: CommandLineChoices | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Settings:
    """Merge every source of settings.

    Args:
        choices: The choices of the command line.
        environ: Environment variables; ``os.environ`` by default.
        directory: The directory of ``harness.toml``; the current directory by default.

    Raises:
        ConfigError: A file cannot be read, a key is unknown, a value is invalid, or two choices contradict each other.
        TargetNotFound: The chosen target is neither a URL nor a named target.
    """
    chosen = choices or CommandLineChoices()
    env = os.environ if environ is None else environ
    variables = _environment_layer(env)
    files = _file_layers(_explicit_file(chosen, env), env, directory)
    targets = _merge_targets(files)
    command_line = _command_line_layer(chosen)
    name = _chosen_name([*files, variables, command_line], targets)
    layers = [*files, *([targets[name]] if name else []), variables, command_line]
    merged = _merge(layers)
    return Settings(
        config=_config(merged, targets),
        target=_target(merged, name, targets.get(name)),
        tmux=_value(merged, "tmux", False) or chosen.pane is not None,
        pane=_value(merged, "pane", None),
        timeout=_value(merged, "timeout", None),
        trusted_dirs=tuple(_value(merged, "trusted_dirs", ())),
        targets=tuple((key, str(_table_target(key, layer))) for key, layer in sorted(targets.items())),
        target_settings=tuple(
            (key, tuple(sorted(layer.values.keys() - LOCATION_KEYS))) for key, layer in targets.items()
        ),
        files=tuple(layer.origin for layer in files),
        tables=frozenset(name for layer in files for name in layer.tables),
        origins=tuple((key, merged[key][1] if key in merged else DEFAULT_ORIGIN) for key in _all_keys()),
        warnings=tuple(text for layer in (*files, variables) for text in layer.warnings),
    )


def load_tables(
    name: str,
    choices: CommandLineChoices | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> tuple[SettingsTable, ...]:
    """Load one of :data:`TOOLKIT_TABLES` from each settings file that has it, in order of the files.

    The arguments are those of :func:`load_settings`.

    Raises:
        ConfigError: A file cannot be read, or the value is not a table.
    """
    env = os.environ if environ is None else environ
    found = []
    for layer in _file_layers(_explicit_file(choices or CommandLineChoices(), env), env, directory):
        values = layer.tables.get(name, {})
        if not isinstance(values, dict):
            raise ConfigError(f"{layer.origin}: {name} is not a table", hint=f"write [{name}]")
        if values:
            found.append(SettingsTable(layer.origin, values, layer.trusted))
    return tuple(found)


def _all_keys() -> tuple[str, ...]:
    return (*GENERAL_KEYS, *ENGINE_KEYS)


# -- sources


def _explicit_file(chosen: CommandLineChoices, env: Mapping[str, str]) -> str | None:
    return chosen.config_file if chosen.config_file is not None else env.get("HARNESS_CONFIG") or None


def _current_directory() -> Path:
    try:
        return Path.cwd()
    except OSError as error:  # it was deleted, or may not be read
        why = (error.strerror or "error").lower()
        raise ConfigError(f"the current directory cannot be used: {why}", hint="change to one that exists") from None


def _file_layers(explicit: str | None, env: Mapping[str, str], directory: Path | None) -> list[_Layer]:
    layers = []
    user = user_config_path(env)
    if _exists(user):
        layers.append(_read(user, check_owner=True))
    project = (directory or _current_directory()) / PROJECT_FILE
    if _exists(project) and not _same(project, user) and not (explicit and _same(project, Path(explicit))):
        layer = _read(project, check_owner=True)
        names = next((_value(_merge([one]), "trusted_dirs", ()) for one in layers), ())
        trusted = is_trusted(project.parent, names)
        if not trusted:
            _check_trust(layer, project)
        layers.append(layer._replace(trusted=trusted))
    if explicit is not None:
        layers.append(_read(expand_home(explicit), check_owner=False))
    return layers


def _exists(path: Path) -> bool:
    """Return whether a file exists.

    Raises:
        ConfigError: That is unknown, as its directory is accessible to another user only.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise ConfigError(
            f"{path}: {(error.strerror or str(error)).lower()}",
            hint="make its directory accessible, or set HOME and the current directory to some that are",
        ) from error
    return True


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(expand_home(other))
    except OSError:
        return False


def _read(path: Path, *, check_owner: bool) -> _Layer:
    import tomllib

    try:
        with open(path, "rb", opener=_open_at_once if check_owner else None) as file:
            if check_owner:
                _check_owner(path, os.fstat(file.fileno()))
            raw = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: invalid TOML: {error}") from error
    warnings = rename_settings(raw, str(path))
    tables = {name: raw.pop(name) for name in TOOLKIT_TABLES & set(raw)}
    values = dict(validate(raw, str(path)))
    return _Layer(str(path), values, values.pop("targets", {}), tables, warnings=warnings)


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe of that name must not block every command


def _check_owner(path: Path, info: os.stat_result) -> None:
    if not stat.S_ISREG(info.st_mode):
        raise ConfigError(f"{path} is not a regular file")
    if info.st_uid not in {os.geteuid(), 0}:
        raise ConfigError(f"{path} belongs to another user", hint="own the file, or name it with --config")
    if info.st_mode & stat.S_IWOTH:
        raise ConfigError(f"{path} is writable by every user", hint=f"chmod o-w {path}")


def _check_trust(layer: _Layer, path: Path) -> None:
    here = path.parent.resolve()
    risky = sorted(set(layer.values) - SAFE_IN_PROJECTS) + (["targets"] if layer.targets else [])
    if layer.values.get("tmux") == CURRENT_TMUX:  # it opens all panes of the operator's tmux
        risky.append("tmux")
    if risky:
        raise ConfigError(
            f"{path}: {', '.join(risky)} may choose hosts or run programs, and this directory is not trusted",
            hint=f"after reading the file, add {str(here)!r} to trusted_dirs in the user's settings, or use --config",
        )


def is_trusted(directory: Path, trusted_dirs: Iterable[str]) -> bool:
    """Return whether ``trusted_dirs`` cover a directory, whose files may then run programs on this machine."""
    return any(_covers(name, directory.resolve()) for name in trusted_dirs)


def _covers(trusted: str, directory: Path) -> bool:
    base = expand_home(trusted.removesuffix("/*")).resolve()
    return base in directory.parents if trusted.endswith("/*") else base == directory


def _environment_layer(env: Mapping[str, str]) -> _Layer:
    known = _all_keys()
    raw: dict[str, object] = {}
    warnings = []
    for variable in sorted(env):
        written = variable.removeprefix(PREFIX)
        if written == variable or written in NOT_SETTINGS:
            continue
        name, text = rename_variable(written.lower(), env[variable])
        if name in known and written.isupper():
            if name != written.lower():
                warnings.append(_check_renamed_variable(variable, f"{PREFIX}{name.upper()}", env, text))
            raw[name] = _variable(variable, name, text)
        elif close := suggest(name, known):  # other products use this prefix, too, so only near misses are reported
            warnings.append(f"{variable} is not a setting; {close} (written {PREFIX}...)")
    return _Layer(ENVIRONMENT, raw, warnings=tuple(warnings))


def _check_renamed_variable(old: str, new: str, env: Mapping[str, str], text: str) -> str:
    if new in env:
        raise both_given(old, new)
    return (
        f"{old} is deprecated: use {new}" if text == env[old] else f"{old}={env[old]} is deprecated: use {new}={text}"
    )


def _variable(variable: str, name: str, text: str) -> object:
    try:
        return validate({name: parse_variable(name, text)}, variable)[name]
    except ValueError as error:
        raise ConfigError(f"{variable}: {error}") from None
    except ConfigError as error:
        raise ConfigError(error.message.replace(f": {name}: ", ": ", 1), hint=error.hint) from None


def _command_line_layer(chosen: CommandLineChoices) -> _Layer:
    names = ("tmux", "pane", "target", "ssh_config", "identity", "connect_timeout", "dedicated_connection", "record")
    values = {name: getattr(chosen, name) for name in names if getattr(chosen, name) is not None}
    if chosen.ssh_options:
        values["ssh_options"] = list(chosen.ssh_options)
    values |= _image_values(chosen)
    if chosen.pane is not None and chosen.tmux is False:
        raise ConfigError("--pane and --no-tmux contradict each other", hint="give one of them")
    composed = _composed(chosen)
    if composed:
        values["target"] = composed
    if isinstance(chosen.tmux, str):
        check_name("session", chosen.tmux, "--tmux")
    if chosen.pane is not None:
        check_name("pane", chosen.pane, "--pane")
    return _Layer(COMMAND_LINE, values)  # these are texts; the validator would cost every command 25 ms


def _image_values(chosen: CommandLineChoices) -> dict[str, Any]:
    """Return the settings of a temporary container; refuse them without ``--image``."""
    options = {"--memory": "image_memory", "--cpus": "image_cpus", "--network": "image_network"}
    values: dict[str, Any] = {}
    for option, name in options.items():
        if (value := getattr(chosen, name)) is not None:
            check_name(name, value, option)
            values[name] = value
    if chosen.image_mounts:
        values["image_mounts"] = list(chosen.image_mounts)
    if chosen.image is None:
        if values:
            raise ConfigError("--memory, --cpus, --network and --mount need --image IMAGE")
        return {}
    return {**values, "image": chosen.image}


def _composed(chosen: CommandLineChoices) -> str:
    if chosen.image == "":
        raise ConfigError("--image was given an empty name")
    if chosen.image and chosen.container is None:
        import secrets

        chosen = replace(chosen, container=f"harness-{secrets.token_hex(4)}")
    hops = {"--ssh": chosen.ssh, "--container": chosen.container}
    given = [name for name, value in hops.items() if value is not None]
    for name in given:
        if not hops[name]:  # an unset shell variable must not run the command on this machine
            raise ConfigError(f"{name} was given an empty name")
    if chosen.target is not None and given:
        raise ConfigError(f"--target and {given[0]} contradict each other", hint="give one of them")
    if chosen.engine and chosen.container is None:
        raise ConfigError("--engine needs --container NAME or --image IMAGE")
    return str(_compose(chosen.ssh, chosen.container, chosen.engine)) if given else ""


# -- merging

_Merged = dict[str, tuple[Any, str]]


def _merge(layers: Iterable[_Layer]) -> _Merged:
    merged: _Merged = {}
    for layer in layers:
        for key, value in layer.values.items():
            merged[key] = (_combine(key, value, merged, layer), _origin(layer, key))
    return merged


def _combine(key: str, value: Any, merged: _Merged, layer: _Layer) -> Any:
    if key == "ssh_options" and layer.origin == COMMAND_LINE:  # ssh uses the first value
        return (*value, *_value(merged, key, ()))
    if key == "env":
        return {**_value(merged, key, {}), **value}
    if key == "tmux" and value is True:  # a bare --tmux keeps a session name from earlier sources
        return _value(merged, key, True) or True
    return value


def _origin(layer: _Layer, key: str) -> str:
    return f"{PREFIX}{key.upper()}" if layer.origin == ENVIRONMENT else layer.origin


def _value(merged: _Merged, key: str, default: Any) -> Any:
    return merged[key][0] if key in merged else default


def _config(merged: _Merged, targets: Mapping[str, _Layer]) -> Config:
    changes = {item.name: merged[item.name][0] for item in fields(Config) if item.name in merged}
    if programs := tuple((name, _exec_target(layer)) for name, layer in targets.items() if "exec" in layer.values):
        changes["exec_targets"] = programs
    for name in ("ssh_options", "image_mounts"):
        if name in changes:
            changes[name] = tuple(changes[name])
    if "env" in changes:
        changes["env"] = tuple(changes["env"].items())
    for name in ("identity", "ssh_config"):
        if changes.get(name):
            changes[name] = os.path.expanduser(changes[name])
    return replace(Config(), **changes)


# -- targets


def _merge_targets(layers: Iterable[_Layer]) -> dict[str, _Layer]:
    return {
        name: _Layer(f"{layer.origin} [targets.{name}]", table)
        for layer in layers
        for name, table in layer.targets.items()
    }


def _chosen_name(layers: Iterable[_Layer], targets: Mapping[str, _Layer]) -> str:
    text = str(_value(_merge(layers), "target", "local:"))
    if ":" in text:
        return ""
    if text in targets:
        return text
    known = ", ".join(sorted(targets)) or "none"
    hint = suggest(text, tuple(targets)) or f"named targets: {known}; for a host write --ssh {text or 'HOST'}"
    raise TargetNotFound(f"no target is named {text!r}", hint=hint)


def _target(merged: _Merged, name: str, table: _Layer | None) -> Target:
    if table is not None:
        return _table_target(name, table)
    return Target.parse(str(_value(merged, "target", "local:")))


def _exec_target(layer: _Layer) -> ExecTarget:
    try:
        return ExecTarget(tuple(layer.values["exec"]), tuple(layer.values.get("exec_terminal", ())))
    except ConfigError as error:
        raise ConfigError(f"{layer.origin}: {error.message}", hint=error.hint) from None


def _table_target(name: str, layer: _Layer) -> Target:
    table = layer.values
    _check_location(layer)
    try:
        if table.get("url"):
            return Target.parse(table["url"])
        composed = _compose(table.get("ssh"), table.get("container"), table.get("engine"))
        if "exec" not in table:
            return composed
        program = Target.parse(f"{EXEC_SCHEME}://{name}")
        return Target((*composed.hops, *program.hops)) if table.get("ssh") else program
    except TargetNotFound as error:
        raise ConfigError(f"{layer.origin}: {error.message}", hint=error.hint) from None


def _check_location(layer: _Layer) -> None:
    """Refuse keys that contradict each other about where a target is.

    Raises:
        ConfigError: They do.
    """
    table = layer.values
    for first, others in (("url", ("ssh", "container", "exec")), ("container", ("exec",))):
        if table.get(first) and (other := next((key for key in others if table.get(key)), "")):
            raise ConfigError(f"{layer.origin}: {first} and {other} contradict each other", hint="give one of them")
    for key, needed in (("engine", "container"), ("exec_terminal", "exec")):
        if table.get(key) and not table.get(needed):
            raise ConfigError(f"{layer.origin}: {key} needs {needed}")


def _compose(ssh: str | None, container: str | None, engine: str | None) -> Target:
    hops = []
    if ssh:
        hops.append(_ssh_url(ssh))
    if container:
        hops.append(f"{engine or 'container'}://{container}")
    return Target.parse("+".join(hops) if hops else "local:")


def _ssh_url(text: str) -> str:
    url = text if text.startswith("ssh://") else f"ssh://{text}"
    shown = mask_password(text)
    if "+" in url:
        raise TargetNotFound(f"{shown!r} is not an SSH host", hint="use --container for a container on the host")
    try:
        return str(Target.parse(url))
    except TargetNotFound as error:
        if shown != text:
            raise
        host = text.rpartition("@")[2]
        hint = f"write an IPv6 address as [{host}]" if host.count(":") > 1 and "[" not in host else error.hint
        raise TargetNotFound(f"{shown!r} is not an SSH host", hint=hint or "write [user@]host[:port]") from None
