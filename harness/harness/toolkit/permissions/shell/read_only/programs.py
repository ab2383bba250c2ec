"""The allowlist of programs that only read, each with the options for which this holds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from ..words import Word
from .host_programs import HOST_PROGRAMS
from .program_grammar import VERSIONS, Program

__all__ = [
    "PROGRAMS",
    "TOOLS",
    "shows_names_only",
    "takes_rights_away",
]


# -- Programs that show names, sizes, dates and permissions of files, or certificates, but no other content.


_FEWER_RIGHTS = re.compile(r"0{0,2}[0-7]00|[go]{1,2}(?:-[rwxst]+|=)(?:,[go]{1,2}(?:-[rwxst]+|=))*")
"""Modes that give no access to group and others."""
_NAMES_ONLY = frozenset(
    [
        *("ls", "dir", "stat", "du", "df", "tree", "readlink", "realpath", "lsattr", "getfacl", "namei", "cd", "find"),
        *("basename", "dirname"),
    ]
)
_LOOKS = frozenset({"ls", "stat", "echo", "printf", "test", "[", "basename", "dirname", "readlink", "realpath", "du"})
_CERTIFICATES = frozenset({"x509", "crl", "verify", "req"})


def takes_rights_away(name: str, words: Sequence[Word]) -> bool:
    """Return whether a command only makes files more private: ``chmod 600 KEY``. Pure."""
    operands = [word.text for word in words if not word.text.startswith("-") or not word.known]
    options = [word.text for word in words if word.known and word.text.startswith("-")]
    return (
        name == "chmod"
        and set(options) <= {"-v", "-c", "-f"}
        and bool(_FEWER_RIGHTS.fullmatch(operands[0] if operands else ""))
    )


def shows_names_only(name: str, words: Sequence[Word]) -> bool:
    """Return whether a reading program shows no content of the files that it names. Pure."""
    texts = [word.text for word in words]
    if name == "openssl":  # it fails on a file without a certificate
        return bool(texts) and texts[0] in _CERTIFICATES
    runs = {program for option, program in pairwise(texts) if option in ("-exec", "-execdir", "-ok", "-okdir")}
    return name in _NAMES_ONLY and (name != "find" or runs <= _LOOKS)


# -- Larger tools with sub-commands that only read: version control, services, containers, packages.


def _p(options: str = "", operands: str = "text", *, most: int | None = None) -> Program:
    if operands == "none":
        return Program(options, "none", most=most)
    return Program(options, "names" if operands == "names" else "text", most=most)


_DIFF = (
    "-pusMCBwbaRzDE -U? -GSl= -# --stat? --numstat --shortstat --dirstat? --summary --name-only --name-status --patch "
    "--no-patch --raw --color? --no-color --word-diff? --word-diff-regex= --unified? --minimal --patience --histogram "
    "--ignore-all-space --ignore-space-change --ignore-blank-lines --ignore-space-at-eol --find-renames? "
    "--find-copies? "
    "--no-renames --diff-filter= --no-ext-diff --no-textconv --exit-code --quiet --relative? --abbrev? --full-index "
    "--binary --submodule? --cc --pickaxe-regex --pickaxe-all --function-context --inter-hunk-context= --check "
    "--ignore-submodules? --src-prefix= --dst-prefix= --no-prefix --text"
)
_LOG = (
    "-gic -n= --oneline --graph --all --decorate? --no-decorate --author= --committer= --grep= --since= "
    "--after= --until= "
    "--before= --max-count= --skip= --merges --no-merges --first-parent --reverse --follow --pretty? --format= "
    "--date= --abbrev-commit --no-abbrev-commit --topo-order --date-order --branches? --tags? --remotes? "
    "--left-right "
    "--cherry-pick --cherry-mark --all-match --invert-grep --regexp-ignore-case --extended-regexp --fixed-strings "
    "--walk-reflogs --show-notes? --no-notes --source --relative-date --parents --children --no-walk? "
    "--full-history "
    "--simplify-by-decoration --ancestry-path --boundary --perl-regexp --min-parents= --max-parents= --not"
)
_GIT: Mapping[str, Program] = {
    "status": _p(
        "-sbvz -u? --short --branch --porcelain? --long --verbose --untracked-files? --ignored? --show-stash "
        "--ahead-behind --no-ahead-behind --no-renames --renames --column? --no-column "
        "--ignore-submodules?",
        "names",
    ),
    "log": _p(f"{_DIFF} {_LOG}", "names"),
    "show": _p(f"{_DIFF} {_LOG}", "names"),
    "diff": _p(f"{_DIFF} --cached --staged --merge-base --no-index --base --ours --theirs", "names"),
    "whatchanged": _p(f"{_DIFF} {_LOG}", "names"),
    "diff-tree": _p(f"{_DIFF} -rtm --root --no-commit-id", "names"),
    "diff-index": _p(f"{_DIFF} -m --cached --merge-base", "names"),
    "diff-files": _p(f"{_DIFF} -cq --base --ours --theirs", "names"),
    "rev-list": _p(f"{_LOG} --count --objects", "names"),
    "shortlog": _p("-nsec --numbered --summary --email --since= --until= --all --no-merges --group=", "names"),
    "branch": _p(
        "-arvl --list --all --remotes --verbose --show-current --color? --no-color --column? --no-column "
        "--sort= --format= --points-at= --contains= --no-contains= --merged= --no-merged= --abbrev?"
    ),
    "tag": _p(
        "-l -n? --list --sort= --format= --contains= --no-contains= --points-at= --merged= --no-merged= --column?"
    ),
    "remote": _p("-v --verbose"),
    "stash": Program(commands={"list": _p(f"{_LOG}"), "show": _p(f"{_DIFF}")}),
    "config": _p(
        "-lz --list --get --get-all --get-regexp --get-urlmatch --global --system --local --worktree --bool "
        "--int --path --type= --null --name-only --show-origin --show-scope --includes --no-includes"
    ),
    "rev-parse": _p(
        "-q --abbrev-ref? --short? --show-toplevel --git-dir --absolute-git-dir --is-inside-work-tree "
        "--is-bare-repository --is-inside-git-dir --show-prefix --show-cdup --verify --quiet --symbolic "
        "--symbolic-full-name --all --branches? --tags? --remotes? --git-common-dir --git-path= --not"
    ),
    "ls-files": _p(
        "-cdmoistkuvz -x= --cached --deleted --modified --others --ignored --stage --unmerged --killed "
        "--exclude= --exclude-standard --full-name --error-unmatch --eol --recurse-submodules "
        "--abbrev?",
        "names",
    ),
    "ls-tree": _p("-drtlz --name-only --name-status --long --full-name --full-tree --abbrev?", "names"),
    "cat-file": _p("-ptse --batch-check? --batch-all-objects"),
    "blame": _p(
        "-bcefklnstwp -L= -MC? -S: --porcelain --line-porcelain --show-name --show-number --show-email --date= "
        "--root --abbrev?",
        "names",
    ),
    "describe": _p(
        "--tags --all --long --always --abbrev? --match= --exclude= --candidates= --dirty? --broken? "
        "--contains --exact-match --first-parent"
    ),
    "merge-base": _p("-a --all --is-ancestor --octopus --independent --fork-point"),
    "name-rev": _p("--tags --refs= --all --name-only --always"),
    "show-ref": _p("-dsq --head --heads --tags --branches --dereference --hash? --abbrev? --verify --quiet"),
    "for-each-ref": _p("--count= --sort= --format= --contains= --merged= --no-merged= --points-at="),
    "count-objects": _p("-vH --verbose --human-readable", "none"),
    "reflog": Program(
        "-# -n= --all --oneline --date= --no-abbrev --no-decorate --decorate?",
        "none",
        commands={"show": _p(_LOG)},
        alone=True,
    ),
    "cherry": _p("-v --abbrev?"),
    "check-ignore": _p("-vqn --verbose --quiet --non-matching --no-index", "names"),
    "grep": _p(
        "-EFGIPLacehilnopqvwWz -ABCe= --cached --untracked --no-index --line-number --count --ignore-case "
        "--word-regexp --files-with-matches --files-without-match --max-depth= --extended-regexp "
        "--fixed-strings "
        "--and --or --not --all-match --heading --break --show-function --function-context --context= "
        "--after-context= --before-context= --color? --no-color --column --only-matching",
        "names",
    ),
    "worktree": Program(commands={"list": _p("-vz --porcelain --verbose", "none")}),
    "submodule": Program(commands={"status": _p("--recursive --cached", "names")}),
    "version": _p("--build-options", "none"),
    "bisect": Program(commands={"log": _p("", "none")}),
    "var": Program("-l", "text", most=1),
}

_UNITS = (
    "-alrq -tpnoP= --all --type= --state= --property= --value --lines= --output= --no-pager --no-legend --legend= "
    "--failed --full --plain --user --system --quiet --recursive --reverse --after --before --show-types "
    "--no-ask-password"
)
_unit = _p(_UNITS)
_SYSTEMCTL: Mapping[str, Program] = dict.fromkeys(
    (
        *("status", "show", "cat", "is-active", "is-enabled", "is-failed", "is-system-running", "list-units"),
        *("list-unit-files", "list-timers", "list-sockets", "list-paths", "list-jobs", "list-dependencies"),
        *("list-automounts", "list-machines", "get-default"),
    ),
    _p(_UNITS),
)
_CONTAINER: dict[str, Program] = {
    "ps": _p(
        "-aqnls --all --quiet --no-trunc --size --latest --last= --filter= --format=",
        "none",
    ),
    "logs": _p("-ft -n= --follow --timestamps --tail= --since= --until= --details"),
    "inspect": _p("-s -f= --format= --size --type="),
    "images": _p("-aq -f= --all --quiet --digests --no-trunc --filter= --format="),
    "top": _p("", most=1),
    "port": _p(""),
    "stats": _p("-a --all --no-stream --no-trunc --format="),
    "version": _p("-f= --format=", "none"),
    "info": _p("-f= --format=", "none"),
    "history": _p("-Hq --human? --no-trunc --quiet --format="),
    "diff": _p(""),
    "events": _p("-f= --filter= --since= --until= --format=", "none"),
}
_LIST = {
    "ls": _p("-aq -f= --all --quiet --no-trunc --filter= --format= --digests --services", "none"),
    "list": _p("-aq -f= --all --quiet --no-trunc --filter= --format=", "none"),
    "inspect": _p("-v -f= --format= --verbose"),
}
_COMPOSE = Program(
    "-p= -f: --file: --project-name= --project-directory:",
    commands={
        "ps": _p("-aq --all --quiet --services --status= --filter= --format="),
        "logs": _p("-ft -n= --follow --timestamps --tail= --since= --until= --no-color --no-log-prefix"),
        "ls": _LIST["ls"],
        "top": _p(""),
        "images": _p("-q --quiet --format="),
        "version": _p("--short --format=", "none"),
        "config": _p("-q --services --images --volumes --profiles --quiet --hash="),
    },
)
_ENGINE = Program(
    "-v --version",
    commands={
        **_CONTAINER,
        **{name: Program(commands=_LIST) for name in ("image", "network", "volume", "context", "node", "service")},
        "container": Program(commands={**_CONTAINER, **_LIST}),
        "system": Program(commands={"df": _p("-v --verbose --format=", "none"), "info": _CONTAINER["info"]}),
        "compose": _COMPOSE,
        "buildx": Program(commands={"ls": _p(""), "version": _p(""), "du": _p("--verbose --filter=")}),
        "stack": Program(
            commands={"ls": _LIST["ls"], "ps": _p("-q --no-trunc --filter= --format="), "services": _p("-q")}
        ),
        "pod": Program(commands={"ps": _CONTAINER["ps"], "ls": _CONTAINER["ps"], "top": _p("", most=1)}),
    },
    alone=True,
)

_ROOT = "-n= --namespace= --request-timeout="
"""Options allowed before the sub-command; another option there may take the next word as its value."""
_KUBE = f"{_ROOT} -A --all-namespaces -l= --selector= --field-selector="
_GET = (
    f"{_KUBE} -oL= -w --output= --show-labels --sort-by= --no-headers --watch --label-columns= --ignore-not-found "
    "--show-kind --chunk-size="
)
_KUBECTL: Mapping[str, Program] = {
    "get": _p(_GET),
    "describe": _p(f"{_KUBE} --show-events="),
    "logs": _p(
        f"{_KUBE} -fp -c= --follow --previous --tail= --since= --since-time= --timestamps --container= "
        "--all-containers? --prefix --limit-bytes= --max-log-requests="
    ),
    "top": _p(f"{_KUBE} --containers --sort-by= --no-headers --use-protocol-buffers"),
    "version": _p("-o= --client --output= --short", "none"),
    "cluster-info": _p(_KUBE, "none"),
    "api-resources": _p("-o= --namespaced= --verbs= --api-group= --no-headers --output=", "none"),
    "api-versions": _p("", "none"),
    "explain": _p("--recursive --api-version="),
    "events": _p(f"{_KUBE} -w --types= --for= --watch --no-headers -o= --output="),
    "rollout": Program(
        commands={"status": _p(f"{_KUBE} -w --watch? --timeout= --revision="), "history": _p(f"{_KUBE} --revision=")}
    ),
    "auth": Program(commands={"can-i": _p(f"{_KUBE} --list -q --quiet --subresource="), "whoami": _p("", "none")}),
    "config": Program(
        commands={
            "get-contexts": _p("--no-headers -o= --output="),
            "current-context": _p("", "none"),
            "get-clusters": _p("", "none"),
        }
    ),
}

_LISTING_APT = ("list", "show", "search", "policy", "depends", "rdepends", "madison", "pkgnames", "stats")
_QUERY_APT = {name: _p("-aqn --installed --upgradable --all-versions --full --names-only") for name in _LISTING_APT}

TOOLS: Mapping[str, Program] = {
    "git": Program(
        "-P -C: --no-pager --no-optional-locks --no-replace-objects --literal-pathspecs --version",
        commands=_GIT,
        alone=True,
    ),
    "systemctl": Program(f"{_UNITS} --version", commands=_SYSTEMCTL, alone=True),
    "journalctl": _p(
        "-# -abefklmNqrx -n? -uogpSUcFt= --unit= --user-unit= --lines? --output= --grep= --priority= --since= "
        "--until= --boot? --dmesg --catalog --follow --reverse --no-pager --quiet --utc --all "
        "--merge --system "
        "--user --identifier= --case-sensitive? --list-boots --disk-usage --no-hostname --no-full --full "
        "--field= --fields --output-fields= --facility= --header --verify --exclude-identifier= "
        "--no-tail --show-cursor --pager-end --truncate-newline"
    ),
    "loginctl": Program(
        "--no-pager --no-legend",
        commands={
            name: _p("-al -p= --no-pager --no-legend --property= --value")
            for name in (
                "list-sessions",
                "list-users",
                "list-seats",
                "session-status",
                "user-status",
                "show-session",
                "show-user",
            )
        },
        alone=True,
    ),
    "timedatectl": Program(
        "--no-pager",
        commands={
            name: _p("-a --all --no-pager --value", "none")
            for name in ("status", "show", "list-timezones", "timesync-status")
        },
        alone=True,
    ),
    "hostnamectl": Program("--no-pager", commands={"status": _p("", "none")}, alone=True),
    "resolvectl": Program(
        "--no-pager", commands={"status": _p(""), "statistics": _p("", "none"), "dns": _p("", most=0)}, alone=True
    ),
    "networkctl": Program(
        "-a --no-pager --no-legend --all", commands={"list": _p("-a"), "status": _p("-a -n=")}, alone=True
    ),
    "docker": _ENGINE,
    "podman": _ENGINE,
    "nerdctl": _ENGINE,
    "docker-compose": _COMPOSE,
    "kubectl": Program(_ROOT, commands=_KUBECTL),
    "oc": Program(_ROOT, commands={name: _KUBECTL[name] for name in ("get", "describe", "logs", "version")}),
    "helm": Program(
        "-n= --namespace=",
        commands={
            "list": _p("-aAdqr -no= --all --all-namespaces --output=", "none"),
            "ls": _p("-aAdqr -no= --all --all-namespaces --output=", "none"),
            "status": _p("-no= --namespace= --output= --revision="),
            "history": _p("-no= --namespace= --output= --max="),
            "version": _p("--short --client", "none"),
            "repo": Program(commands={"list": _p("-o= --output=", "none")}),
        },
    ),
    "dpkg": _p(
        "-lLsSpC --get-selections --list --listfiles --status --search --print-avail --audit --version "
        "--print-architecture"
    ),
    "dpkg-query": _p("-lLsSWp -f= --list --listfiles --status --search --show --showformat="),
    "apt": Program("--installed --version", commands=_QUERY_APT),
    "apt-cache": Program(commands=_QUERY_APT),
    "rpm": _p(
        "-VqailcdR --query --all --info --list --configfiles --docfiles --requires --provides --changelog --last "
        "--whatprovides --whatrequires --scripts --file -f --queryformat= --qf= --version"
    ),
    "pip": Program(
        "--version -V",
        commands={
            "list": _p("-l --format= --user --local"),
            "show": _p("-f --files"),
            "freeze": _p("-l --all --local"),
            "check": _p("", "none"),
        },
        alone=True,
    ),
    "pip3": Program(
        "--version -V",
        commands={
            "list": _p("-l --format= --user --local"),
            "show": _p("-f --files"),
            "freeze": _p("-l --all --local"),
            "check": _p("", "none"),
        },
        alone=True,
    ),
    "zpool": Program(commands={"status": _p("-vxPLg"), "list": _p("-HPLpv -o="), "iostat": _p("-vyHp")}),
    "zfs": Program(commands={"list": _p("-Hpr -dosStx="), "get": _p("-Hpr -dost=")}),
    "lvs": _p("-av -oS= --noheadings --units= --options= --separator="),
    "vgs": _p("-av -oS= --noheadings --units= --options= --separator="),
    "pvs": _p("-av -oS= --noheadings --units= --options= --separator="),
    "ufw": Program(commands={"status": Program(commands={"verbose": Program(), "numbered": Program()}, alone=True)}),
    "chronyc": Program("-n", commands={name: _p("-v") for name in ("sources", "sourcestats", "tracking", "activity")}),
    "openssl": Program(
        commands={
            "version": Program("-a -v -b -d -o -f -p", one_dash=True),
            "x509": Program(
                "-in: -noout -text -dates -enddate -startdate -subject -issuer -serial -fingerprint "
                "-sha256 -sha1 "
                "-checkend= -purpose -email -modulus -hash -ext= -nameopt= -inform=",
                one_dash=True,
            ),
            "ciphers": Program("-v -V -s -tls1_2 -tls1_3", "text", one_dash=True),
            "dgst": Program("-md5 -sha1 -sha224 -sha256 -sha384 -sha512 -r -hex -c", "paths", one_dash=True),
            "list": Program("-digest-algorithms -cipher-algorithms -commands -providers -disabled", one_dash=True),
            "verify": Program("-CAfile: -CApath= -untrusted: -verbose -show_chain -purpose=", "paths", one_dash=True),
            "req": Program("-in: -noout -text -subject -pubkey -verify -inform= -nameopt=", one_dash=True),
            "crl": Program("-in: -noout -text -lastupdate -nextupdate -issuer -inform=", one_dash=True),
        }
    ),
    **{name: Program(options, one_dash=True) for name, options in VERSIONS.items()},
}


# -- Programs that only read, each with its safe options, operands and sub-commands.


def _reads(options: str = "", *, loose: bool = True) -> Program:
    return Program(options + " --help --version", "paths", loose=loose)


def _shows(options: str = "") -> Program:
    return Program(options + " --help --version")


def _words(options: str = "", *, loose: bool = True) -> Program:
    return Program(options + " --help --version", "text", loose=loose)


def _names(options: str = "", *, loose: bool = True) -> Program:
    return Program(options + " --help --version", "names", loose=loose)


_GREP = (
    "-abcEFGHhiILlnoPqRrsTUvVwxyZzu -ABCDdem= -f: -# --extended-regexp --fixed-strings --basic-regexp --perl-regexp "
    "--regexp= --file: --ignore-case --no-ignore-case --word-regexp --line-regexp --count --color? --colour? "
    "--files-without-match --files-with-matches --max-count= --only-matching --quiet --silent --no-messages "
    "--byte-offset --with-filename --no-filename --line-number --initial-tab --null --after-context= "
    "--before-context= --context= --text --binary-files= --exclude= --exclude-dir= --include= --recursive "
    "--dereference-recursive --line-buffered --null-data --invert-match"
)
_GZIPPED = (".gz", ".z", ".Z", "-gz", "-z", "_z")
"""Suffixes that gzip tries if a file does not exist."""
_SUM = "-bctwz --binary --check --tag --text --zero --ignore-missing --quiet --status --strict --warn"
_PS = (
    "-AadefFHjlLmMNTwyVZ -CGgopqsUutOk= --cols= --columns= --cumulative --deselect --forest --format= --headers "
    "--lines= --no-headers --no-heading --pid= --ppid= --sort= --tty= --user= --User= --group= --Group= "
    "--width= --rows="
)

_FILES: dict[str, Program] = {
    "cat": _reads("-AbeEnstTuv --show-all --number --number-nonblank --squeeze-blank --show-ends --show-tabs"),
    "tac": _reads("-br -s= --before --separator="),
    "head": _reads("-qvz -nc= -# --lines= --bytes= --quiet --silent --verbose --zero-terminated"),
    "tail": _reads("-fFqvzr -ncs= -# --lines= --bytes= --follow? --pid= --quiet --retry --sleep-interval= --verbose"),
    "wc": _reads("-clmLw --bytes --chars --lines --max-line-length --words --total="),
    "nl": _reads("-p -bdfhilnsvw= --body-numbering= --number-width="),
    "cut": _reads(
        "-nsz -bcdf= --bytes= --characters= --delimiter= --fields= --complement --only-delimited --output-delimiter="
    ),
    "paste": _reads("-sz -d= --delimiters= --serial"),
    "fold": _reads("-bs -w= --spaces --width="),
    "fmt": _reads("-cstu -wgp= --width="),
    "expand": _reads("-i -t= --tabs="),
    "unexpand": _reads("-a -t= --tabs="),
    "rev": _reads(),
    "column": _reads(
        "-tnxLedJ -csNoORHTWl= --table --separator= --output-separator= --table-columns= --json "
        "--table-right= --table-hide= --output-width="
    ),
    "comm": _reads("-123iz --check-order --nocheck-order --output-delimiter= --total"),
    "join": _reads("-iz -12aejotv= --header --check-order"),
    "cmp": _reads("-bls -in= --print-bytes --ignore-initial= --verbose --bytes= --quiet --silent"),
    "diff": _reads(
        "-abBcdeEHiNnpqrstTuwyZ -CIUxW= -X: --brief --unified? --context? --side-by-side --color? --recursive "
        "--new-file --exclude= --ignore-all-space --ignore-space-change --ignore-blank-lines --ignore-case "
        "--suppress-common-lines --width= --text --label= --report-identical-files --minimal"
    ),
    "md5sum": _reads(_SUM),
    "sha1sum": _reads(_SUM),
    "sha224sum": _reads(_SUM),
    "sha256sum": _reads(_SUM),
    "sha384sum": _reads(_SUM),
    "sha512sum": _reads(_SUM),
    "b2sum": _reads(_SUM + " -l="),
    "cksum": _reads("-a= --algorithm="),
    "sum": _reads("-rs"),
    "base64": _reads("-di -w= --decode --wrap= --ignore-garbage"),
    "base32": _reads("-di -w= --decode --wrap="),
    "od": _reads("-abcdfilosxv -AjNtS= -w? --address-radix= --format= --read-bytes= --skip-bytes= --width?"),
    "hexdump": _reads("-bcCdoxv -ens="),
    "hd": _reads("-v -ns="),
    "xxd": Program("-abeiup -cglnos=", "paths", most=1, own=True),
    "strings": Program("-afow -nte= --all --bytes= --radix= --encoding= --help --version", "paths", responses=True),
    "grep": Program(_GREP + " --help --version", "pattern", loose=True),
    "egrep": Program(_GREP + " --help --version", "pattern", loose=True),
    "fgrep": Program(_GREP + " --help --version", "pattern", loose=True),
    "zgrep": Program(_GREP, "pattern", suffixes=_GZIPPED),
    "zcat": Program("-fqv --help --version", "paths", suffixes=_GZIPPED),
    "bzcat": _reads(loose=False),
    "xzcat": _reads(loose=False),
    "rg": Program(
        "-acFHhiIlLnNopPqsSuUvVwx -ABCEegjmMtTr= -f: -. -0 -# --regexp= --file: --count --count-matches --color= "
        "--colors= --column --context= --after-context= --before-context= --files --files-with-matches "
        "--files-without-match --fixed-strings --follow --glob= --iglob= --heading --no-heading --hidden --ignore-case "
        "--invert-match --json --line-number --no-line-number --max-count= --max-columns= --max-depth= --multiline "
        "--no-ignore --no-ignore-vcs --no-config --no-messages --null --only-matching --passthru --pcre2 --pretty "
        "--quiet --replace= --smart-case --case-sensitive --sort= --sortr= --stats --text --threads= --trim --type= "
        "--type-not= --type-list --unrestricted --vimgrep --with-filename --no-filename --word-regexp --line-regexp",
        "pattern",
    ),
    "sort": Program(
        "-bcCdfghiMmnrRsuVz -kt= --key= --field-separator= --check? --numeric-sort --reverse --unique "
        "--human-numeric-sort "
        "--version-sort --general-numeric-sort --month-sort --ignore-case --ignore-leading-blanks --dictionary-order "
        "--stable --zero-terminated --merge --sort= --parallel= --random-sort --help --version",
        "paths",
    ),
    "uniq": Program(
        "-cdDiuz -fsw= --count --repeated --unique --ignore-case --skip-fields= --skip-chars= "
        "--check-chars= --help --version",
        "paths",
        most=1,
    ),
    "tr": _words("-cCdst --complement --delete --squeeze-repeats --truncate-set1"),
    "jq": Program(
        "-cCMnrRsSeja --compact-output --raw-output --raw-input --null-input --slurp --sort-keys "
        "--exit-status --join-output --tab --color-output --monochrome-output --indent=",
        "pattern",
    ),
    "ls": _names(
        "-aAbBcCdfFghHiklLmnNopqQrRsStuUvxXZ1G -ITw= --all --almost-all --author --block-size= --color? --classify? "
        "--directory --dereference --file-type --format= --full-time --group-directories-first --hide= "
        "--human-readable "
        "--hyperlink? --ignore= --indicator-style= --inode --literal --no-group --numeric-uid-gid --quote-name "
        "--quoting-style= --recursive --reverse --si --size --sort= --time= --time-style= --width= --zero --context"
    ),
    "dir": _names("-aAlhrRtS1"),
    "stat": _names("-Lfts -c= --dereference --file-system --format= --printf= --terse --cached="),
    "du": _names(
        "-0abcDhHklLmPsSx -Bdt= --all --apparent-size --block-size= --bytes --total --dereference --max-depth= "
        "--human-readable --inodes --one-file-system --summarize --threshold= --time? --exclude= --si",
        loose=False,
    ),
    "df": _names(
        "-aHhiklmPTv -Btx= --all --block-size= --total --human-readable --si --inodes --local --no-sync "
        "--portability --print-type --type= --exclude-type= --output?"
    ),
    "file": _names(
        "-bhikLNnprsvz0I -FP= --brief --mime --mime-type --mime-encoding --dereference --no-dereference", loose=False
    ),
    "tree": Program(
        "-adfgilnpqrstuvCDFhJNSUQ -LPI= --du --si --dirsfirst --noreport --prune --gitignore --help --version",
        "names",
        own=True,
    ),
    "readlink": _names("-efmnqsvz --canonicalize --canonicalize-existing --canonicalize-missing --no-newline --zero"),
    "realpath": _names("-eLmPqsz --relative-to= --relative-base= --canonicalize-existing --canonicalize-missing"),
    "basename": _words("-az -s= --multiple --suffix="),
    "dirname": _words("-z --zero"),
    "pwd": _shows("-LP"),
    "lsattr": _names("-RVadlpv", loose=False),
    "getfacl": _names("-acdeEsRLPtpn", loose=False),
    "namei": _names("-lmovx --long --modes --owners", loose=False),
    "unzip": Program("-lvZ1", "paths", permute=False),
    "zipinfo": _reads("-12lmshtTzv", loose=False),
    "xxhsum": _reads("-H="),
}

_SYSTEM: dict[str, Program] = {
    "sleep": _words(loose=False),
    "seq": _words("-w -fs= --equal-width --format= --separator= -#"),
    "break": Program(operands="text", most=1),
    "continue": Program(operands="text", most=1),
    "date": Program(
        "-uRI -dr= --date= --utc --universal --rfc-2822 --rfc-email --rfc-3339= --iso-8601? --reference= -I? "
        "--help --version",
        "text",
        most=1,
    ),
    "cal": _words("-13jmsy -ABn=", loose=False),
    "uptime": _shows("-psV --pretty --since"),
    "free": _shows(
        "-bkmghlwtvV -sc= --bytes --kibi --mebi --gibi --human --wide --total --si --lohi --count= --seconds="
    ),
    "uname": _shows("-asnrvmpio --all --kernel-name --nodename --kernel-release --kernel-version --machine"),
    "arch": _shows(),
    "nproc": _shows("--all --ignore="),
    "hostname": _shows("-aAdfiIsy --fqdn --short --domain --ip-address --all-ip-addresses --all-fqdns --long --alias"),
    "id": _words("-agGnruzZ --group --groups --name --real --user --zero"),
    "whoami": _shows(),
    "groups": _words(),
    "who": _reads("-abdHlmpqrstTuw --all --boot --count --heading --users", loose=False),
    "w": _words("-hsfioupV --no-header --short", loose=False),
    "users": _shows(),
    "last": _words(
        "-adFiwxRg -nstp= -f: -# --fulltimes --limit= --since= --until= --present= --hostlast --ip", loose=False
    ),
    "lastlog": _shows("-bu= --before= --user= --time= -t="),
    "tty": _shows("-s"),
    "logname": _shows(),
    "getent": Program("-i", "text"),
    "getconf": _words("-a", loose=False),
    "locale": _words("-ackm --all-locales --charmaps", loose=False),
    "which": _words("-a --all"),
    "whereis": _words("-bmsul"),
    "type": _words("-afptP"),
    "ps": Program(_PS + " --help --version", "text"),
    "pgrep": _words(
        "-aclnofiuvwxV -dgGPstuU= --list-name --list-full --full --count --newest --oldest --exact "
        "--parent= --euid= --uid= --delimiter=",
        loose=False,
    ),
    "pidof": _words("-csxzq -oS=", loose=False),
    "pstree": _words("-aAcghlnNpsStTuUVZ -HN=", loose=False),
    "top": Program("-bceiHScs1 -dnopuUwE=", "none"),
    "vmstat": _words("-aDdfmnstwyV -pS= -#", loose=False),
    "iostat": _words("-cdhkmNstVxyz -gjp= --human", loose=False),
    "mpstat": _words("-AuVnTH -IPN=", loose=False),
    "lscpu": _shows("-abBcpeJxyC --all --extended? --parse? --json --online --offline"),
    "lsblk": _names(
        "-abdDfiJlmnOpPrsStVxz -eIoMTwx= --all --bytes --fs --json --list --nodeps --output= --output-all "
        "--paths --pairs --noheadings --topology --perms --scsi",
        loose=False,
    ),
    "lsmod": _shows(),
    "lspci": _shows("-bDknmtvVxP -s="),
    "lsusb": _shows("-vtV -sd= -D:"),
    "lsns": _words("-Jlnruw -opt= --json --output= --type= --task=", loose=False),
    "lsof": Program("-abChlMnNOPRtUVwX -cdpu= -gsTi?", "names"),
    "findmnt": _words(
        "-AaDefJklmnPRrsuv -dNOopStTMw= -F: --json --output= --target= --source= --types= --noheadings "
        "--all --list --df --raw --fstab --kernel --real --pseudo",
        loose=False,
    ),
    "mount": Program("-l -t=", "none"),
    "swapon": Program("-s --show? --summary --bytes --noheadings --raw", "none"),
    "ipcs": _shows("-mqsacltupb -i="),
    "dmesg": Program(
        "-deHkLPrtTuxw -lf= -F: --ctime --human --level= --facility= --kernel --userspace --nopager --color? "
        "--time-format= --reltime --decode --follow --json -S --since= --until= --raw",
        "none",
    ),
    "netstat": Program(
        "-46aeFglnoprstuvWcxiMN --all --numeric --listening --programs --tcp --udp --route --statistics "
        "--interfaces --extend --wide",
        "none",
    ),
    "ss": Program(
        "-46HOQTZabdefhilmnoprstuVwx -Af= --all --extended --family= --info --ipv4 --ipv6 --listening --memory "
        "--no-header --numeric --oneline --options --processes --query= --raw --resolve --summary --tcp --udp "
        "--unix --vsock --packet",
        "text",
    ),
    "ifconfig": Program("-asv", "text", most=1),
    "route": Program("-neFCv -46 --numeric", "none"),
    "arp": Program("-aevn --numeric", "none"),
    "sensors": Program("-fuAj", "none"),
    "ulimit": Program("-aHSbcdefiklmnpqrstuvxPRT", "none"),
    "umask": Program("-Sp", "none"),
    "jobs": Program("-lnprs", "none"),
    "times": Program(),
    "cd": Program("-LPe", "names", most=1),
    "read": Program("-rs", "text"),
    "sysctl": Program("-abeNnqA -r= --all --binary --ignore --names --values --pattern= --quiet", "text"),
    "iptables": Program(
        "-nvxSL -t= --list --list-rules --line-numbers --numeric --verbose --exact --table=", "text", most=1
    ),
    "ip6tables": Program(
        "-nvxSL -t= --list --list-rules --line-numbers --numeric --verbose --exact --table=", "text", most=1
    ),
    "getenforce": Program(),
    "sestatus": Program("-vb"),
}

PROGRAMS: Mapping[str, Program] = {**_FILES, **_SYSTEM, **TOOLS, **HOST_PROGRAMS}
