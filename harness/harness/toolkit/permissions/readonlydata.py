"""The programs that only read, each with the options, operands and sub-commands with which that is so."""

from __future__ import annotations

from collections.abc import Mapping

from .host_programs import HOST_PROGRAMS
from .readonlyprogram import Program
from .readonlytools import TOOLS

__all__ = ["PROGRAMS"]


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
"""What gzip tries behind a name that is not there."""
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
