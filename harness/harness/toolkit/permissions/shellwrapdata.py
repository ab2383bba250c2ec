"""The option grammars of programs that run other programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["PRIVILEGED", "WRAPPERS", "Wrapper"]


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A program that runs the command behind its options and ``skip`` operands.

    ``harmless``: the options with which it still only passes on. ``reason``: why it is never read-only itself.
    ``script``: the options whose value is a shell text. ``joined``: its words are joined into one; ``joins``: the
    options with which they are. ``tail``: it adds words that it reads. ``assignments``: ``A=b`` may stand first.
    ``permute``: its options may stand behind operands. ``alone``: what it is without a command.
    """

    options: str = ""
    skip: int = 0
    harmless: str = ""
    reason: str = ""
    script: tuple[str, ...] = ()
    joined: bool = False
    joins: tuple[str, ...] = ()
    tail: bool = False
    assignments: bool = False
    permute: bool = False
    alone: str = "it waits for commands"


_OTHER = "it runs as another user, or elsewhere"
_SU = "-lmpPfsgGcT= --command= --session-command= --shell= --group= --supp-group= --login --preserve-environment"

PRIVILEGED = frozenset(
    [
        *("sudo", "doas", "su", "runuser", "pkexec", "chroot", "nsenter", "unshare", "systemd-run", "setpriv", "gosu"),
        *("su-exec", "runcon", "sg", "machinectl", "at", "batch", "ssh"),
    ]
)
"""What these run, runs as another user, in another place or at another time."""

WRAPPERS: Mapping[str, Wrapper] = {
    "sudo": Wrapper(
        "-ABbEHikKlnNPSsvVe -ugpCcDhRrtTU= --user= --group= --prompt= --close-from= --chdir= --host= --chroot= --role= "
        "--type= --other-user= --command-timeout= --login --shell --non-interactive --preserve-env? --stdin --set-home "
        "--background --askpass --edit --list --validate --remove-timestamp --reset-timestamp --bell --no-update",
        reason=_OTHER,
        joins=("-i", "-s", "--login", "--shell"),
        assignments=True,
    ),
    "doas": Wrapper("-nsL -uCa=", reason=_OTHER),
    "pkexec": Wrapper("--user= --disable-internal-agent --keep-cwd", reason=_OTHER),
    "su": Wrapper(
        "-lmpP -cgGswT= " + _SU.split(None, 1)[1], skip=99, reason=_OTHER, script=("-c", "--command"), permute=True
    ),
    "runuser": Wrapper(
        "-lmpP -cgGsuwT= " + _SU.split(None, 1)[1] + " --user=",
        reason=_OTHER,
        script=("-c", "--command"),
    ),
    "gosu": Wrapper(skip=1, reason=_OTHER),
    "su-exec": Wrapper(skip=1, reason=_OTHER),
    "setpriv": Wrapper(
        "--reuid= --regid= --clear-groups --init-groups --keep-groups --groups= --no-new-privs --reset-env "
        "--inh-caps= --ambient-caps= --bounding-set= --securebits=",
        reason=_OTHER,
    ),
    "runcon": Wrapper("-c -urtl= --user= --role= --type= --range= --compute", skip=1, reason=_OTHER),
    "sg": Wrapper("-c=", skip=1, reason=_OTHER, script=("-c",), joined=True),
    "chroot": Wrapper("--userspec= --groups= --skip-chdir", skip=1, reason=_OTHER),
    "nsenter": Wrapper(
        "-aFeZ -tSG= -muinpUCTrw? --target= --setuid= --setgid= --all --mount? --uts? --ipc? --net? --pid? --user? "
        "--cgroup? --time? --root? --wd? --no-fork --preserve-credentials --follow-context",
        reason=_OTHER,
    ),
    "unshare": Wrapper(
        "-fFrc -RwSGl= -muinpUCT? --mount? --uts? --ipc? --net? --pid? --user? --cgroup? --time? --fork "
        "--map-root-user "
        "--map-current-user --mount-proc? --kill-child? --root= --wd= --setuid= --setgid= --propagation=",
        reason=_OTHER,
    ),
    "systemd-run": Wrapper(
        "-tPqGdSr -upEMHCp= --user --system --scope --pty --pipe --wait --quiet --collect --no-block --same-dir "
        "--shell "
        "--remain-after-exit --slice-inherit --unit= --property= --setenv= --host= --machine= --slice= --uid= --gid= "
        "--nice= --description= --working-directory= --service-type= --on-active= --on-boot= --on-calendar= "
        "--timer-property=",
        reason=_OTHER,
    ),
    "machinectl": Wrapper("--uid= -q --quiet --setenv= -E=", skip=2, reason=_OTHER),
    "env": Wrapper(
        "-i0v -uC= --ignore-environment --null --debug --unset= --chdir= --block-signal? --default-signal? "
        "--ignore-signal?",
        harmless="-iv --ignore-environment",
        assignments=True,
        alone="",
    ),
    "nice": Wrapper("-n= -# --adjustment=", harmless="-n= -# --adjustment="),
    "ionice": Wrapper("-cnpPu= -t --class= --classdata= --ignore", harmless="-cn= -t --class= --classdata= --ignore"),
    "chrt": Wrapper("-aabfiorRvd -TPD= --batch --fifo --idle --other --rr", skip=1, reason="it changes priorities"),
    "taskset": Wrapper("-ac --all-tasks --cpu-list", skip=1, harmless="-c --cpu-list"),
    "nohup": Wrapper(reason="it writes nohup.out, and what it runs stays"),
    "timeout": Wrapper(
        "-fpv -ks= --foreground --preserve-status --verbose --kill-after= --signal=",
        skip=1,
        harmless="-fpv -ks= --foreground --preserve-status --verbose --kill-after= --signal=",
    ),
    "stdbuf": Wrapper("-ioe= --input= --output= --error=", harmless="-ioe= --input= --output= --error="),
    "setsid": Wrapper("-cfw --ctty --fork --wait", reason="what it runs leaves the terminal"),
    "time": Wrapper("-apvq -of= --append --output= --format= --portability --verbose", harmless="-p --portability -v"),
    "xargs": Wrapper(
        "-0rtpxo -nLPIdasER= -ile? --null --no-run-if-empty --verbose --interactive --exit --max-args= --max-lines? "
        "--max-procs= --replace? --delimiter= --arg-file= --max-chars= --eof? --open-tty --show-limits",
        harmless="-0rtx -nLPIds= -i? --null --no-run-if-empty --max-args= --max-lines? --max-procs= --replace? "
        "--delimiter=",
        tail=True,
        alone="",
    ),
    "watch": Wrapper(
        "-bcdegtxwCr -nq= --differences? --beep --color --errexit --chgexit --no-title --exec --interval= --equexit= "
        "--no-wrap --precise -p",
        harmless="-bcdegtxwC -n= --differences? --color --no-title --exec --interval=",
        joined=True,
    ),
    "flock": Wrapper(
        "-sxeunoFv -wEc= --shared --exclusive --unlock --nonblock --nb --timeout= --wait= --close "
        "--conflict-exit-code= "
        "--no-fork --verbose --command=",
        skip=1,
        reason="it makes or takes a lock",
        script=("-c", "--command"),
    ),
    "script": Wrapper(
        "-aefq -cOIBTEmo= -t? --append --command= --return --flush --force --quiet --log-out= --log-in= --log-io= "
        "--log-timing= --echo= --logging-format= --output-limit= --timing?",
        reason="it writes a record",
        script=("-c", "--command"),
        skip=1,
        permute=True,
    ),
    "strace": Wrapper(
        "-fFvqcCdhikknNrtTwxyYzZDV -espoauabEIOPSUX= --follow-forks --quiet? --trace= --output= --attach= "
        "--user= --env=",
        reason="it looks into and may change what it runs",
    ),
    "ltrace": Wrapper("-fcCiSrtTV -aAeDFlLnopsuwxX= --output=", reason="it looks into and may change what it runs"),
    "exec": Wrapper("-cl -a=", reason="it replaces the shell", alone="it changes the shell's files"),
    "builtin": Wrapper(alone="", reason=""),
    "coproc": Wrapper(reason="it leaves a command running"),
    "noglob": Wrapper(reason="zsh alone knows it"),
    "nocorrect": Wrapper(reason="zsh alone knows it"),
    "-": Wrapper(reason="zsh alone knows it"),
    "and": Wrapper(reason="fish alone knows it"),
    "or": Wrapper(reason="fish alone knows it"),
    "not": Wrapper(reason="fish alone knows it"),
    "begin": Wrapper(reason="fish alone knows it", alone=""),
    "repeat": Wrapper(skip=1, reason="zsh alone knows it"),
}
