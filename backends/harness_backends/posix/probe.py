"""The probe of a target's capabilities, in one round trip with the state directory."""

from __future__ import annotations

import time
from typing import NamedTuple

from harness.backend import Capabilities

__all__ = ["SCRIPT", "Probe", "parse_probe"]

_TOOLS = (
    "tmux setsid env sh bash zsh fish perl python3 sudo su runuser setpriv doas "
    "sha256sum shasum openssl cksum base64 od awk sed stat find grep rg git tar gzip "
    "tail head cat dd wc mkfifo mktemp readlink realpath ln mv sync stty ps getent date timeout id chown "
    "ssh docker podman systemctl journalctl"
)

# One "key=value" line each. A feature that only some versions of a program have is listed as "program option". Starting
# programs takes most of the time, then every write, which wakes the reader: keep both few. What programs have told is
# kept in facts for :data:`.state_directory.PROLOGUE`; not what may change without a trace there: an account that is
# not in /etc/passwd, and a tmux that is a script.
SCRIPT = rf"""
if [ -z "$hx_machine" ]; then
  hx_entry=$(grep "^[^:]*:[^:]*:$hx_uid:" /etc/passwd 2>/dev/null </dev/null | hx_lines 1)
  case $hx_entry in
    *:*:"$hx_uid":*:*:*:*) ;;
    *) hx_key= hx_entry=$(getent passwd "$hx_uid" 2>/dev/null </dev/null | hx_lines 1) ;;
  esac
  [ -n "$hx_entry" ] || hx_entry=$(
    while IFS= read -r line; do
      case $line in *:*:"$hx_uid":*) hx_put "$line"; break ;; esac
    done </etc/passwd 2>/dev/null
  )
  hx_version=
  if [ -n "$hx_tmux" ]; then
    hx_version=$(tmux -V </dev/null | hx_lines 1)
    case $({{ head -c 2 "$hx_tmux" 2>/dev/null; echo; }} </dev/null | hx_lines 1) in "#!" | "") hx_key= ;; esac
  fi
  {{ read -r hx_machine </proc/sys/kernel/arch; }} 2>/dev/null || hx_machine=$(uname -m </dev/null | hx_lines 1)
  [ -z "$hx_key" ] || [ -z "$hx_launcher" ] || [ -z "$hx_machine" ] || {{
    umask 077
    hx_put "$hx_key$hx_nl$hx_launcher$hx_nl$hx_entry$hx_nl$hx_version$hx_nl$hx_machine${{hx_nl}}end$hx_nl" \
      >"$hx_root/facts"
  }} 2>/dev/null
fi
hx_user=${{hx_entry%%:*}}
[ -n "$hx_user" ] || hx_user=$(id -un </dev/null | hx_lines 1)
hx_uname=
{{
  read -r hx_line </proc/sys/kernel/ostype && read -r hx_left </proc/sys/kernel/hostname &&
    read -r hx_dir </proc/sys/kernel/osrelease && hx_uname="$hx_line $hx_left $hx_dir $hx_machine"
}} 2>/dev/null
[ -n "$hx_uname" ] || hx_uname=$(uname -snrm </dev/null | hx_lines 1)
[ -n "$hx_now" ] || hx_now=$(date +%s.%N </dev/null | hx_lines 1)
hx_tools=
[ "$hx_launcher" != env ] || hx_tools="tool=env --default-signal=env$hx_nl"
hx_in_path '
  for hx_line; do
    hx_which "$hx_line"
    [ -z "$hx_path" ] || hx_tools="${{hx_tools}}tool=$hx_line $hx_path$hx_nl"
  done
' {_TOOLS}
hx_put "user=$hx_user${{hx_nl}}uid=$hx_uid${{hx_nl}}home=$HOME${{hx_nl}}env_shell=$SHELL${{hx_nl}}passwd=$hx_entry
tmux=$hx_version${{hx_nl}}uname=$hx_uname${{hx_nl}}clock=$hx_now
$hx_tools
"
"""


class Probe(NamedTuple):
    """The probe's result; ``clock_offset`` is the target's clock minus this machine's, in seconds.

    ``duration`` is the number of seconds until the target's answer, with the start of its shell.
    """

    capabilities: Capabilities
    clock_offset: float
    duration: float = 0.0


def parse_probe(text: str, state_dir: str, now: float | None = None) -> Probe:
    """Parse the output of :data:`SCRIPT`, skipping lines of other scripts; ``now`` is this machine's clock."""
    fields: dict[str, str] = {}
    tools: list[tuple[str, str]] = []
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if key == "tool":
            tools.append(_tool(value))
        else:
            fields.setdefault(key, value)
    entry = fields.get("passwd", "").split(":")
    account = entry if len(entry) == 7 else [""] * 7
    system, hostname = _system(fields.get("uname", ""))
    capabilities = Capabilities(
        user=fields.get("user") or account[0],
        uid=int(fields["uid"]) if fields.get("uid", "").isdecimal() else -1,
        home=fields.get("home") or account[5] or "/",
        shell=account[6] or fields.get("env_shell") or "/bin/sh",
        system=system,
        hostname=hostname,
        state_dir=state_dir,
        tmux_version=fields.get("tmux", "").removeprefix("tmux ").strip(),
        tools=tuple(tools),
    )
    return Probe(capabilities, _clock_offset(fields.get("clock", ""), time.time() if now is None else now))


def _system(uname: str) -> tuple[str, str]:
    """Split ``Linux web1 6.1.0 x86_64`` into the system without the host name, and the host name."""
    kernel, _, rest = uname.partition(" ")
    name, _, version = rest.partition(" ")
    return f"{kernel} {version}".strip(), name


def _tool(value: str) -> tuple[str, str]:
    """Parse ``tail /usr/bin/tail``, or ``stat -c=stat`` for a feature."""
    feature, equals, program = value.rpartition("=")
    if equals and " -" in feature:
        return feature, program
    name, _, path = value.partition(" ")
    return name, path


def _clock_offset(text: str, now: float) -> float:
    seconds, _, fraction = text.partition(".")
    if not seconds.isdecimal():
        return 0.0
    if fraction.isdecimal():
        return float(f"{seconds}.{fraction}") - now
    offset = int(seconds) + 0.5 - now  # a clock with a resolution of one second
    return 0.0 if abs(offset) < 1.0 else offset
