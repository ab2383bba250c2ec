"""A tmux server for harness: its settings, its shells, and why one is refused."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from harness.backend import Capabilities
from harness.config import Config
from harness.errors import NoSpace, PaneGone, TerminalError
from harness.target import Target

from .channel.control_protocol import OWN_PID
from .naming import listed
from .pane.keyboard import release
from .version import TmuxVersion

__all__ = [
    "HOOKS",
    "SESSION_FORMAT",
    "SESSION_IDENTITY",
    "TURNS",
    "NewPane",
    "Setup",
    "control_argv",
    "log_files",
    "no_space",
    "pane_files",
    "pane_files_missing",
    "pane_shell",
    "renamed",
    "replaced_login_shell",
    "session_refusal",
    "setup_script",
    "shell_kind",
    "shells_script",
    "state_question",
    "window_commands",
    "window_removal",
]


# -- Which shell the panes run. Pure.


WITHOUT_MARKERS = frozenset({"bsd-csh", "csh", "elvish", "es", "nu", "pwsh", "rc", "tcsh", "xonsh"})
"""Login shells with a syntax unlike sh, which do not support the prompt markers."""


def pane_shell(configured: str, capabilities: Capabilities) -> str:
    """Return the configured shell, else the account's; bash or sh instead of one that does not support markers."""
    if replaced_login_shell(configured, capabilities):
        return dict(capabilities.tools).get("bash", "/bin/sh")
    return configured or capabilities.shell or "/bin/sh"


def shell_kind(path: str) -> str:
    """Return the kind of a shell, as its hooks and the keys to type depend on it."""
    return path.rpartition("/")[2].replace("busybox", "ash")


def replaced_login_shell(configured: str, capabilities: Capabilities) -> str:
    """Return the name of the account's shell if another one replaces it, else an empty string."""
    name = capabilities.shell.rpartition("/")[2]
    return name if not configured and name in WITHOUT_MARKERS else ""


# -- The script that prepares a target for harness's tmux server: hook files, server, session, drainer. Pure; it runs in
# one round trip.


HOOKS = {
    "hooks.sh": "hooks.sh",
    "jobs.sh": "jobs.sh",
    "hooks.fish": "hooks.fish",
    "probe": "probe",
    "pane.sh": "pane.sh",
    "bashrc": "bashrc",
    "shrc": "shrc",
    "load": "load",
    "separate_streams.sh": "separate_streams.sh",
    "fishrc": "fishrc",
    "zsh/.zshenv": "zshenv",
    "zsh/.zprofile": "zprofile",
    "zsh/.zshrc": "zshrc",
    "zsh/.zlogin": "zlogin",
}

SESSION_IDENTITY = "#{session_id}@#{session_created}@#{pid}"
"""What tells a session from a later one of its name, also on another server that was started in the same second."""
SESSION_FORMAT = "#{@harness}:#{@harness_for}:#{@harness_name}:#{session_name}"
"""The original name stays in the option if an operator renames the session; tmux allows no colon in names."""

STATE_OPTION = "@harness_state"
"""The pane option that contains the state directory of the harness that created the pane."""
PAUSE_AFTER = 1
"""Seconds of lag after which tmux pauses a pane's output to the control client (3.2), and so nearly the longest that an
answer waits behind output; the least that tmux takes."""


TURNS = """
turn() { exec 9>>"$1/turn"; flock -w 5 9 || timeout 5 flock 9; } 2>/dev/null
nap() { sleep 0.02 || sleep 1; }
"""
"""``turn ROOT`` waits until no other managed client attaches or detaches, and holds a lock while descriptor 9 is open.

tmux 3.2 to 3.5a crashes when it notifies a control client, as after a detach or a new session, while another control
client is partly identified (seen 22 to 27 times in 1,500 attachments by two at a time; never on 3.1c and 3.7c).
busybox's ``flock`` has no ``-w``; without ``flock`` nothing is locked.
"""


@cache
def hook_sources() -> dict[str, str]:
    """Return the hook files, by their path below the hooks directory on the target."""
    folder = Path(__file__).with_name("hooks")  # importlib.resources takes 10 ms to load
    return {path: (folder / name).read_text("utf-8") for path, name in HOOKS.items()}


@cache
def hooks_version() -> str:
    """Return a name for exactly these hook files; other versions of harness store theirs next to them."""
    text = "\0".join(f"{path}\0{source}" for path, source in sorted(hook_sources().items()))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class NewPane:
    """The names and secrets of a new pane."""

    name: str
    uid: str
    nonce: str
    shell: str
    cwd: str = ""


@dataclass(frozen=True, slots=True)
class Setup:
    """The settings and names that the setup script depends on."""

    root: str
    session: str
    version: TmuxVersion
    config: Config
    shells_root: str = ""
    """The state directory where the panes' shells run, if that is not where tmux runs."""
    enter: Callable[[Sequence[str]], list[str]] | None = None
    """Builds the command that starts a program with a terminal where the panes' shells run; None: tmux starts it."""
    host: str = ""
    """The name of this machine in records, if its logs are not on the target."""
    control: bool = True
    """True if control mode is available."""
    logs: bool = True
    """True if ``pipe-pane`` is available."""
    label: str = ""
    """The target's label if tmux runs elsewhere, as the limit of sessions counts per target."""
    create: bool = True
    """True to create a missing session, which else is an error."""
    session_id: str = ""
    """tmux's id of the session, which a rename does not change; empty until it was found."""
    shown: str = ""
    """The current name of the session, if known."""
    identity: str = ""
    """Its :data:`SESSION_IDENTITY`: a later session of its name has another one; empty until found."""

    @property
    def here(self) -> bool:
        """True if tmux runs on this machine, and its panes contain shells on another."""
        return self.enter is not None

    def found(self, answer: str) -> Setup:
        """Return this setup with the session that :func:`setup_script` found."""
        identity, _, shown = answer.partition(":")
        return replace(self, session_id=identity.partition("@")[0], shown=shown, identity=identity)

    @property
    def exact(self) -> str:
        """The session as tmux's target: its id, else its exact name."""
        return self.session_id or f"={self.session}"

    @property
    def name(self) -> str:
        """The current name of the session."""
        return self.shown or self.session

    @property
    def scope(self) -> str:
        """The flag of ``set-option`` for a pane's options; tmux without those stores them with the window."""
        return "-p" if self.version.pane_options else "-w"

    @property
    def hooks(self) -> str:
        """The hooks directory, where the panes' shells run."""
        return f"{self.shells_root or self.root}/tmux/{hooks_version()}"

    def pane_dir(self, uid: str) -> str:
        """Return a pane's directory where its shell runs: nonce, settings, slot."""
        return f"{self.shells_root or self.root}/panes/{uid}"

    def log_dir(self, uid: str) -> str:
        """Return a pane's directory where tmux runs: nonce, logs."""
        return f"{self.root}/panes/{uid}"

    @property
    def tmux(self) -> str:
        """The start of a tmux command line for a shell, without the command."""
        return f"tmux -u -L {shlex.quote(self.config.tmux_socket)}"

    def pane_command(self, pane: NewPane) -> str:
        """Return the command that runs in the pane."""
        words = ["sh", f"{self.hooks}/pane.sh", self.pane_dir(pane.uid), pane.shell, self.hooks, pane.cwd]
        return f"exec {shlex.join(self.enter(words) if self.enter else words)}"

    def log_command(self, uid: str, number: int) -> str:
        """Return the command for ``pipe-pane``, which appends to the log up to its limit, unbuffered."""
        log = shlex.quote(f"{self.log_dir(uid)}/log.{number}")
        return f"ulimit -f {self.max_log_bytes // 512}; exec cat >>{log}"

    @property
    def max_log_bytes(self) -> int:
        """The maximum bytes of a log; later output of the pane is not logged."""
        return self.config.job_log_max_bytes // 512 * 5 // 4 * 512


def pane_files(setup: Setup, pane: NewPane) -> str:
    """Return shell commands that create a pane's directory, with its nonce and its shell's settings."""
    folder = setup.pane_dir(pane.uid)
    settings = {
        "hxdir": f"{setup.shells_root or setup.root}/jobs",
        "hxslot": f"{setup.pane_dir(pane.uid)}/next",
        "hxn": pane.nonce,
        "hxk": shell_kind(pane.shell),
        "hxt": "1" if setup.config.prompt_tag else "",
        "hxread": f"{setup.hooks}/probe",
        "hxcols": str(setup.config.width),
    }
    posix = "".join(f"{key}={shlex.quote(value)}\n" for key, value in settings.items())
    posix += "".join(f"export {name}={shlex.quote(value)}\n" for name, value in setup.config.env)
    fish = "".join(f"set -g {key} {fish_quote(value)}\n" for key, value in settings.items())
    fish += "".join(f"set -gx {name} {fish_quote(value)}\n" for name, value in setup.config.env)
    return f"mkdir -p {shlex.quote(folder)}\n" + "".join(
        _write(f"{folder}/{name}", text)
        for name, text in (
            *_marks(setup, pane),
            ("settings", posix),
            ("settings.fish", fish),
            *(() if setup.here else (("free", free_script(setup)),)),
        )
    )


def free_script(setup: Setup) -> str:
    """Return what the pane's keeper runs when the job ``$hx_job`` has ended; see ``hooks/pane.sh``."""
    commands = release("PANE", (setup.scope, "-t", "PANE"), "JOB")
    words = " \\; ".join(" ".join(f'"{word}"' for word in command) for command in commands)  # plain ones and a format
    return f"{setup.tmux} {words.replace('PANE', '$TMUX_PANE').replace('JOB', '$hx_job')}\n"


def log_files(setup: Setup, pane: NewPane) -> str:
    """Return shell commands that create a pane's directory for its logs, where tmux runs."""
    folder = setup.log_dir(pane.uid)
    writes = "".join(_write(f"{folder}/{name}", text) for name, text in _marks(setup, pane))
    return f"mkdir -p {shlex.quote(folder)}\n{writes}"


def _marks(setup: Setup, pane: NewPane) -> tuple[tuple[str, str], ...]:
    """Return files that identify the pane: its nonce, and the socket of the server that knows whether it exists."""
    return ("nonce", f"{pane.nonce}\n"), ("socket", f"{setup.config.tmux_socket}\n")


def shells_script(setup: Setup, pane: NewPane) -> str:
    """Return a script that creates the hook files and a pane's files where the panes' shells run."""
    return f"umask 077\n{_hook_files(setup)}{pane_files(setup, pane)}"


def fish_quote(text: str) -> str:
    """Quote one word for fish, whose single quotes allow two escapes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _write(path: str, text: str) -> str:
    return f"printf %s {shlex.quote(text)} >{shlex.quote(path)}\n"


def _hook_files(setup: Setup) -> str:
    hooks = shlex.quote(setup.hooks)
    writes = "".join(
        f"{_write(f'{setup.hooks}/{path}', text)[:-1]} &&\n" for path, text in hook_sources().items()
    )  # a full disk must not leave a part of them permanently
    return f"if [ ! -e {hooks}/ok ]; then\nmkdir -p {hooks}/zsh &&\n{writes}: >{hooks}/ok\nfi\n"


def server_options(setup: Setup) -> list[tuple[str, ...]]:
    """Return the server's settings, set before its first pane, as a pane's history limit cannot be changed later."""
    config = setup.config
    options: list[tuple[str, ...]] = [
        ("set-option", "-g", "history-limit", str(config.history_limit)),
        ("set-option", "-g", "default-terminal", "screen-256color"),
        ("set-option", "-g", "status-left-length", "40"),
        ("set-option", "-g", "status-right-length", "60"),
        ("set-option", "-g", "status-right", "#{?@harness_busy,job #{@harness_busy} runs - F12: keyboard,} %H:%M"),
        ("set-option", "-g", "mouse", "off"),
        ("set-option", "-s", "escape-time", "10"),
        ("set-option", "-s", "set-clipboard", "off"),
        ("set-option", "-wg", "automatic-rename", "off"),
        ("set-option", "-wg", "allow-rename", "off"),
        ("set-option", "-wg", "aggressive-resize", "off"),
    ]
    return options


def window_commands(setup: Setup, pane: NewPane, umask: str, shown: str) -> list[tuple[str, ...]]:
    """Return the commands, sent together, that create a window with a managed pane; ``shown`` is the first's format.

    tmux runs commands that are sent together without serving other clients in between, so a listing shows a pane with
    its options or not at all: of two panes created with one name at the same moment, the later one's creator sees the
    earlier. At first the window has a unique name, by which the commands find it.
    """
    session, alone = f"{setup.exact}:", f"hx{pane.uid}"
    command = f"umask {umask or '022'}; {setup.pane_command(pane)}"
    return [
        ("new-window", "-d", "-t", session, "-n", alone, "-P", "-F", shown, "sh", "-c", command),
        *pane_options(setup, pane, f"{session}{alone}"),
        ("rename-window", "-t", f"{session}{alone}", pane.name),
    ]


def window_removal(setup: Setup, pane: NewPane) -> tuple[str, ...]:
    """Return the command that removes the window if tmux refused one of :func:`window_commands`; it may fail itself."""
    return "kill-window", "-t", f"{setup.exact}:hx{pane.uid}"


def pane_options(setup: Setup, pane: NewPane, target: str) -> list[tuple[str, ...]]:
    """Return the commands that mark a new window's pane as managed, set its size and start its log.

    ``resize-window`` makes the size manual for this window, so that attaching clients never change it. The global
    option would do this for all windows, but with it tmux 3.3a crashes when a detached session is created.
    """
    config, scope = setup.config, setup.scope
    commands: list[tuple[str, ...]] = [
        ("set-option", scope, "-t", target, "@harness_pane", pane.name),
        ("set-option", scope, "-t", target, "@harness_uid", pane.uid),
        ("set-option", "-F", scope, "-t", target, "@harness_pane_id", "#{pane_id}"),
        ("set-option", scope, "-t", target, STATE_OPTION, setup.root),
        ("set-option", "-w", "-t", target, "remain-on-exit", "off"),
    ]
    if setup.version.window_size:
        commands.append(("resize-window", "-t", target, "-x", str(config.width), "-y", str(config.height)))
    if setup.logs:
        commands.append(("pipe-pane", "-t", target, setup.log_command(pane.uid, 0)))
    return commands


def _start_session(setup: Setup, pane: NewPane) -> str:
    config = setup.config
    options = " \\; ".join(shlex.join(command) for command in server_options(setup))
    ours = [
        ("set-option", "-t", f"={setup.session}:", "@harness", "1"),
        ("set-option", "-t", f"={setup.session}:", "@harness_name", setup.session),
        ("set-option", "-t", f"={setup.session}:", "destroy-unattached", "off"),
        ("set-option", "-t", f"={setup.session}:", "detach-on-destroy", "on"),
        *([("set-option", "-t", f"={setup.session}:", "@harness_for", setup.label)] if setup.label else []),
        *pane_options(setup, pane, f"={setup.session}:"),
    ]
    then = " \\; ".join(shlex.join(command) for command in ours)
    unlock = shlex.join(
        ("bind-key", "-n", "F12", "select-pane", "-e", "\\;", "set-option", "-w", "@harness_unlocked", "1")
    )
    return (
        f"{log_files(setup, pane) if setup.here else pane_files(setup, pane)}"
        f"( hx_locale; unset TMUX; exec {setup.tmux} -f /dev/null start-server \\; {options} \\; {unlock} \\; "
        f"new-session -d -s {setup.session} -x {config.width} -y {config.height} -n {pane.name} "
        f'sh -c "umask $hx_umask; "{shlex.quote(setup.pane_command(pane))} \\; {then} ) '
        "</dev/null >/dev/null 9>&- && echo created=1 || {\n"
        f"{_end_half_made(setup, pane)}}}\n"
    )


def _end_half_made(setup: Setup, pane: NewPane) -> str:
    """Return a script that kills a partly created session, such as one without a log, but not another harness's."""
    exact = f"={setup.session}"
    uid = f"$({setup.tmux} display-message -p -t {exact}: '#{{@harness_uid}}' 2>/dev/null)"
    return f'if [ "{uid}" = {pane.uid} ]; then {setup.tmux} kill-session -t {exact}; echo failed=; exit 0; fi\n'


def drainer_script(setup: Setup, session: str) -> str:
    """Return a script that starts the always-attached reader (3.2 and newer), without which programs can freeze.

    Args:
        session: a word of the shell.
    """
    if not (setup.version.client_flags and setup.control):
        return ""
    fifo = f"{shlex.quote(setup.root)}/run/drain.$$"
    run = (
        f'unset TMUX; trap "" HUP; exec {setup.tmux} -C attach-session -t "$2" '
        '-f no-output,ignore-size <>"$1" >/dev/null 2>&1'
    )
    return (
        f"hx_drained() {{ case $({setup.tmux} list-clients -F '#{{client_flags}}' 2>/dev/null) in\n"
        "*no-output*) ;; *) return 1 ;; esac; }\n"
        f"if ! hx_drained; then\n[ ! -e {fifo} ] || rm -f {fifo}; mkfifo {fifo}\n"
        f"hx_s=$(command -v setsid)\n"
        f"$hx_s sh -c {shlex.quote(run)} sh {fifo} {session} </dev/null >/dev/null 2>&1 9>&- &\n"
        "n=0; until hx_drained; do\n"
        "n=$((n + 1)); [ $n -lt 100 ] && kill -0 $! 2>/dev/null || break; sleep 0.02 2>/dev/null || sleep 1; done\n"
        f"rm -f {fifo}\nfi\n"
    )


def _unless_limited(setup: Setup) -> str:
    """Return a script that exits if the session is missing and must not be created."""
    if not setup.create:
        return 'echo "missing=$hx_names"; exit 0\n'
    return f'set -- $hx_names\nif [ "$#" -ge {setup.config.max_sessions} ]; then echo "full=$hx_names"; exit 0; fi\n'


def setup_script(setup: Setup, pane: NewPane) -> str:
    """Return a script that creates missing hooks, server, session and drainer.

    It prints ``session=ID@CREATED:NAME`` with the current name, and ``created=1`` if it created the session. Otherwise
    it prints ``foreign=1`` if harness did not create the session of that name, ``missing=NAMES`` or ``full=NAMES`` with
    the existing sessions if the session is missing and may not be created, or ``failed=WHY`` without a session.
    """
    tmux = setup.tmux
    why = f"failed=no space for its files in {setup.root}"
    missing = f"[ -e {shlex.quote(setup.hooks)}/ok ] || {{ echo {shlex.quote(why)}; exit 0; }}\n"
    return (
        f"umask 077\n{TURNS}turn {shlex.quote(setup.root)}\n"
        f"{'' if setup.here else _hook_files(setup) + missing}"
        f'{_find_session(setup)}if [ -z "$hx_id" ]; then\n'
        f'if [ -n "$hx_foreign" ]; then echo foreign=1; exit 0; fi\n'
        f"{_unless_limited(setup)}{_start_session(setup, pane) if setup.create else ''}hx_find\nfi\n"
        f'if [ -z "$hx_id" ]; then echo "failed=$({tmux} -f /dev/null start-server 2>&1)"; exit 0; fi\n'
        f'echo "session=$hx_session"\n' + drainer_script(setup, '"$hx_id"')
    )


def _find_session(setup: Setup) -> str:
    """Return a script that sets ``hx_session`` to ``IDENTITY:NAME``, ``hx_id`` to the id, ``hx_names`` to all names.

    It finds the session by its name, or by its original name after a rename; it skips unmanaged sessions, of which one
    may have the name: ``hx_foreign`` is not empty then.
    """
    form = f"{SESSION_IDENTITY}:{SESSION_FORMAT}"
    listed = f"{setup.tmux} list-sessions -F '{form}' </dev/null 2>/dev/null"
    ours, name = shlex.quote(f"1:{setup.label}"), shlex.quote(setup.session)
    return (
        f"hx_find() {{\nhx_session= hx_names= hx_foreign= hx_list=$({listed})\nwhile IFS=: read -r i o l m n; do\n"
        f'if [ "$o:$l" != {ours} ]; then [ "$n" != {name} ] || hx_foreign=1; continue; fi\n'
        f'hx_names="$hx_names$n "\n'
        f'if [ "$n" = {name} ]; then hx_session=$i:$n\n'
        f'elif [ "$m" = {name} ] && [ -z "$hx_session" ]; then hx_session=$i:$n; fi\n'
        f"done <<X\n$hx_list\nX\nhx_id=${{hx_session%%@*}}\n}}\nhx_find\n"
    )


def control_argv(setup: Setup) -> list[str]:
    """Return the command that runs the control client.

    Its input is relayed, so that a client whose owner has exited is killed even if tmux has pending output for it: such
    a client would stay forever and block ``kill-server``. The relay also keeps managed clients from attaching while
    another one detaches; see :data:`TURNS`. Both ends of the FIFO are open before the relay starts, so that no process
    of a killed client keeps the lock.

    It prints its process id first, as before attaching tmux would report that of another client.
    """
    flags = f"-f ignore-size,pause-after={PAUSE_AFTER}" if setup.version.client_flags else ""
    listed = f"{setup.tmux} list-clients -F '#{{client_pid}}'"
    script = (
        'umask 077; unset TMUX; f=$1/run/control.$$; [ ! -e "$f" ] || rm -f "$f"; mkfifo "$f" || exit 1\n'
        f'exec 3<&0 5<>"$f" 4>"$f" <"$f" 5>&-; rm -f "$f"\n{TURNS}'
        f'l="\n"\nattached() {{ case $l$({listed})$l in *"$l$$$l"*) ;; *) return 1 ;; esac; }}\n'
        '( turn "$1"; echo go >&4\n'
        "( n=0; until attached || ! kill -0 $$ || [ $n -ge 100 ]; do n=$((n + 1)); nap; done ) 4>&- &\n"
        "exec 9>&-; cat <&3 >&4\n"
        'turn "$1"; exec 4>&-; n=0; while kill -0 $$ && [ $n -lt 50 ]; do n=$((n + 1)); nap; done; kill -9 $$\n'
        f"{listed} ) </dev/null >/dev/null 2>&1 &\n"
        f'printf "%%{OWN_PID} %s\\n" "$$"; exec 3<&- 4>&-; read -r go || exit 1\n'
        f"exec {setup.tmux} -C attach-session -t {shlex.quote(setup.exact)} {flags}"
    )
    return ["sh", "-c", script, "sh", setup.root]


# -- Errors about missing sessions, files and disk space. Pure.


def no_space(target: object) -> NoSpace:
    """Return the error about a command that could not be stored."""
    where = "free disk space in harness's state directory, or run it without tmux, which keeps it in memory"
    return NoSpace("no space for the command, so nothing ran", target=target, hint=where)


def session_refusal(
    fields: Mapping[str, str], setup: Setup, target: Target, complaint: bytes = b""
) -> TerminalError | None:
    """Return the error that :func:`setup_script` reported, or None if the session exists.

    ``complaint`` is the script's standard error.
    """
    session = setup.session
    if "missing" in fields:
        return PaneGone(
            f"tmux session {session!r} does not exist; {listed(fields['missing'].split())}",
            target=target,
            hint="choose one with --tmux NAME; the first command creates it",
        )
    if "full" in fields:
        return TerminalError(
            f"cannot create session {session!r}: the limit max_sessions = {setup.config.max_sessions} is reached; "
            f"{listed(fields['full'].split())}",
            target=target,
            hint="use one of these with --tmux NAME, kill one (harness sessions kill NAME), or raise max_sessions",
        )
    if "foreign" in fields:
        return TerminalError(
            f"tmux session {session!r} was not made by harness", target=target, hint="use another name: --tmux NAME"
        )
    if "failed" in fields:
        why = fields["failed"] or complaint.decode("utf-8", "replace").strip() or "no reason given"
        return TerminalError(f"tmux could not start a session: {why}", target=target)
    return None


def renamed(session: str, name: str) -> str:
    """Return the notice about a renamed session, which is found by its option."""
    return f"tmux session {session!r} was renamed to {name!r}; still using it"


def state_question(pane_id: str) -> tuple[str, ...]:
    """Return the tmux command that prints the state directory for :func:`pane_files_missing`."""
    return ("display-message", "-p", "-t", pane_id, f"#{{{STATE_OPTION}}}")


def pane_files_missing(pane: str, state: str, setup: Setup, target: object) -> TerminalError:
    """Return the error about a pane without its files, which is unusable as its shell's markers are unknown.

    Args:
        state: the state directory of the harness that created the pane; empty if an earlier version did.
    """
    if state and state != setup.root:
        return TerminalError(
            f"pane {pane!r} of tmux session {setup.name!r} belongs to another harness of this account: its state "
            f"directory is {state}, this process's is {setup.root}",
            target=target,
            hint="use a session of another name (--tmux NAME) or another tmux_socket; or the same XDG_STATE_HOME, "
            "to work in that session",
        )
    return TerminalError(
        f"the state files of pane {pane!r} were deleted",
        target=target,
        hint=f"harness sessions kill {setup.session} kills the session; the next command creates a new one",
    )
