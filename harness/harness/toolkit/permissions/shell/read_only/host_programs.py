"""Programs that read the state of a host, its network and services, or of other hosts, with their safe options."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from ..words import Options, ParsedCommand, Word, grammar, parse_options
from .program_grammar import Program

__all__ = [
    "HOST_CHECKS",
    "HOST_PROGRAMS",
    "LOOKUPS",
    "lookup_reason",
]


# -- Commands that query other hosts for names, reachability, headers or certificates. Pure.
#
# They change nothing, but the query leaves the host, so they run without asking only if the settings allow it. All of
# their words must be known, and options that send or write more than the query are not on the allowlist.


_HOST = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:%-]*")
_PORTS = re.compile(r"[0-9]{1,5}(?:-[0-9]{1,5})?|[a-z][a-z0-9-]*")
_URL = re.compile(r"https?://(?:[A-Za-z0-9_.-]+|\[[0-9a-f:]+\])(?::[0-9]{1,5})?(?:[/?][\w./%?&=~+,:-]*)?")
_FORMAT = re.compile(r"(?:%\{(?!stderr|header_json|json)[a-z_]+(?:\.[a-z_]+)?\}|\\[nrt]|[\w .,:;/=()-])*")
_NUMBER = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,3})?")
_COUNT = re.compile(r"[0-9]{1,3}")
_DIG_WORD = re.compile(r"\+[a-z0-9]+(?:=[\w.:/-]*)?|@[\w.:%-]+")


def _hosts(options: Options, *, most: int = 1, least: int = 1) -> bool:
    words = options.operands
    return least <= len(words) <= most and all(word.known and _HOST.fullmatch(word.text) for word in words)


def _values_fit(options: Options, pattern: re.Pattern[str], *names: str) -> bool:
    values = [word for name, word in options.given if name in names and word is not None]
    return all(word.known and pattern.fullmatch(word.text) for word in values)


def _dig(options: Options, found: ParsedCommand) -> bool:
    plain = [word for word in options.operands if not (word.known and _DIG_WORD.fullmatch(word.text))]
    names = all(word.known and _HOST.fullmatch(word.text) for word in plain)
    return names and _values_fit(options, _HOST, "-x", "-t", "-q", "-c", "-p")


def _named(options: Options, found: ParsedCommand) -> bool:
    return _hosts(options, most=2) and _values_fit(options, _HOST, "-t", "-W", "-R", "-c")


def _asks_name(options: Options, found: ParsedCommand) -> bool:
    return _hosts(options, most=2) and all(
        word is None or (word.known and _HOST.fullmatch(word.text)) for _, word in options.given
    )


def _ping(options: Options, found: ParsedCommand) -> bool:
    return (
        options.has("-c") and _hosts(options) and _values_fit(options, _COUNT, "-c") and _numbers(options, "-I", "-M")
    )


def _numbers(options: Options, *but: str) -> bool:
    return all(
        word is None or (word.known and (_NUMBER if name not in but else _HOST).fullmatch(word.text))
        for name, word in options.given
    )


def _route(options: Options, found: ParsedCommand) -> bool:
    return _hosts(options) and _numbers(options)


def _mtr(options: Options, found: ParsedCommand) -> bool:
    return options.has("-r", "-w", "--report", "--report-wide") and _hosts(options) and _numbers(options)


def _curl(options: Options, found: ParsedCommand) -> bool:
    """Return whether curl shows only the headers, or only the code and times of the response."""
    urls = options.operands
    outputs = [word for name, word in options.given if name in ("-o", "--output") and word is not None]
    drops = bool(outputs) and all(word.known and word.text == "/dev/null" for word in outputs)
    answers = options.has("-I", "--head") or drops
    fine = len(urls) == 1 and urls[0].known and _URL.fullmatch(urls[0].text) is not None
    formats = _values_fit(options, _FORMAT, "-w", "--write-out")
    numbers = _values_fit(options, _NUMBER, "-m", "--max-time", "--connect-timeout", "--retry")
    return answers and fine and formats and numbers and (drops or not outputs)


def _certificate(options: Options, found: ParsedCommand) -> bool:
    """Return whether s_client sends nothing to the other host: it would send its input."""
    connects = options.value("-connect")
    fine = all(word is None or (word.known and re.fullmatch(r"[\w.:%,/-]+", word.text)) for _, word in options.given)
    return connects is not None and not options.operands and fine and _reads_nothing(found)


def _reads_nothing(found: ParsedCommand) -> bool:
    read = [item.word for item in found.redirects if item.word is not None and not item.writes]
    if read:
        return all(word.known and word.text == "/dev/null" for word in read)
    source = [word.text for word in found.input.source]
    return found.input.kind == "terminal" or source in (["echo"], ["echo", ""], ["echo", "Q"], ["true"], [":"])


def _port(options: Options, found: ParsedCommand) -> bool:
    host, *ports = options.operands or [Word.unknown("?")]
    known = all(word.known and _PORTS.fullmatch(word.text) for word in ports)
    return (
        options.has("-z")
        and bool(ports)
        and known
        and bool(_HOST.fullmatch(host.text))
        and host.known
        and _numbers(options)
    )


def _clock(options: Options, found: ParsedCommand) -> bool:
    return options.has("-q") and _hosts(options, most=4)


_Fits = Callable[[Options, ParsedCommand], bool]
_PING = ("-nqvD46 -cWwistIM=", _ping)
_TRACE = ("-n46ITUFe -mqwpfz=", _route)
LOOKUPS: Mapping[str, tuple[str, _Fits]] = {
    "dig": ("-46rmu -xtqcp=", _dig),
    "host": ("-aCdv46rsTnU -tWRc=", _named),
    "whois": ("-HI", _asks_name),
    "ping": _PING,
    "ping6": _PING,
    "traceroute": _TRACE,
    "traceroute6": _TRACE,
    "tracepath": ("-nb46 -mpl=", _route),
    "mtr": ("-rwnbzTu46 -csimP= --report --report-wide --no-dns --show-ips --report-cycles= --aslookup", _mtr),
    "curl": (
        "-sSkLfvIi46 -mow= --silent --show-error --insecure --location --fail --head --include --max-time= --verbose "
        "--connect-timeout= --output= --write-out= --ipv4 --ipv6 --http1.1 --http2 --retry= --compressed",
        _curl,
    ),
    "nc": ("-zvnu46 -w=", _port),
    "ncat": ("-zvnu46 -w=", _port),
    "netcat": ("-zvnu46 -w=", _port),
    "ntpdate": ("-qduv46", _clock),
}
"""Programs with their allowed options and the check of their words."""
_CLIENT = (
    "-connect= -servername= -showcerts -brief -quiet -no_ign_eof -starttls= -alpn= -tls1 -tls1_1 -tls1_2 -tls1_3 "
    "-status "
    "-verify= -verify_return_error -4 -6 -ign_eof -crlf -verify_hostname="
)
_TYPES = re.compile(r"-(?:type|query|q|querytype|timeout|retry|port)=[\w.]+")


def lookup_reason(name: str, words: Sequence[Word], found: ParsedCommand) -> str | None:
    """Return why a command does more than query another host; empty if it does not, None for other programs."""
    if name == "openssl" and [word.text for word in words[:1]] == ["s_client"]:
        options = parse_options(words[1:], grammar(_CLIENT, one_dash=True))
        return _answer(name, options, _certificate(options, found))
    if name == "nslookup":
        rest = [word for word in words if not (word.known and _TYPES.fullmatch(word.text))]
        options = parse_options(rest, grammar(""))
        return _answer(name, options, _asks_name(options, found))
    if name not in LOOKUPS:
        return None
    spec, fits = LOOKUPS[name]
    options = parse_options(words, grammar(spec))
    return _answer(name, options, fits(options, found))


def _answer(name: str, options: Options, fits: bool) -> str:
    if options.reason:
        return f"{name}: {options.reason}"
    return "" if fits else f"{name}: a word is not on the allowlist or only known at run time"


# -- Programs that read the state of disks, the network, services and settings of a host, with their safe options.


def _shows(options: str, operands: str = "none", *, most: int | None = None, one_dash: bool = False) -> Program:
    kind = {"none": "none", "text": "text", "names": "names", "paths": "paths"}[operands]
    return Program(options, kind, most=most, one_dash=one_dash)  # type: ignore[arg-type]  # one of the four


_LVM = "-acmsvCPH -oOS= --columns --units= --options= --noheadings --separator= --all --short --maps --verbose"
_CLOCK = "-np4 -c="

HOST_PROGRAMS: Mapping[str, Program] = {
    # disks
    "blkid": _shows(
        "-dikplV -oLUst= --output= --match-tag= --match-token= --label= --uuid= --probe --info --version", "text"
    ),
    "fdisk": _shows("-lxnV -ot= --list --list-details --output= --type= --noauto-pt --version", "text"),
    "sfdisk": _shows(
        "-dJlFVsTgqv --dump --json --list --list-free --verify --show-size --list-types --quiet --version", "text"
    ),
    "smartctl": _shows(
        "-axHicAjV -dlnq= --all --xall --health --info --capabilities --attributes --json --scan --scan-open --version "
        "--device= --log= --nocheck=",
        "text",
    ),
    "hdparm": _shows("-iIgCV", "text"),
    "mdadm": _shows(
        "-DEQsvbtYV --detail --examine --query --scan --verbose --brief --test --export --detail-platform --version",
        "text",
    ),
    "nvme": Program(
        commands={
            **dict.fromkeys(
                ("list", "list-subsys", "smart-log", "error-log", "id-ctrl", "id-ns", "fw-log", "show-regs"),
                _shows("-vHe -on= --output-format= --verbose --human-readable --log-entries=", "text"),
            ),
            "version": _shows(""),
        }
    ),
    **dict.fromkeys(("pvdisplay", "vgdisplay", "lvdisplay"), _shows(_LVM, "text")),
    "btrfs": Program(
        commands={
            "filesystem": Program(
                commands=dict.fromkeys(
                    ("show", "usage", "df", "du"), _shows("-dmbhHsTkgt --raw --si --mounted", "names")
                )
            ),
            "subvolume": Program(commands=dict.fromkeys(("list", "show"), _shows("-acgopqrstu", "names"))),
            "device": Program(commands={"stats": _shows("-cT", "names"), "usage": _shows("-bhH", "names")}),
            "scrub": Program(commands={"status": _shows("-dR", "names")}),
            "version": _shows(""),
        }
    ),
    "tune2fs": _shows("-l", "text", most=1),
    "dumpe2fs": _shows("-hbgxV", "text", most=1),
    "showmount": _shows("-adev --all --directories --exports --no-headers"),
    "nfsstat": _shows("-2cmnorsvl34 -Z? --client --server --nfs --rpc --mounts --list --verbose --all"),
    "quota": _shows("-FgpqQsuvwi --human-readable --group --user --verbose --raw-grace --no-wrap", "text"),
    "repquota": _shows("-acgGinpPsutv --all --user --group --human-readable --verbose", "text"),
    "qemu-img": Program(commands={"info": _shows("-U -f= --force-share --output= --format=", "paths", most=1)}),
    # processes and hardware
    "pidstat": _shows("-dhHIlrRstuvVw -CGpTU= --human --dec=", "text"),
    "sar": _shows("-AbBdFhHpqrRSuvVwWyzt -nPIjmeis= -f: --human --pretty --dec=", "text"),
    "fuser": _shows("-4 -6 -acImuvV -n= --all --mount --user --verbose --ismountpoint --namespace= --version", "text"),
    "numactl": _shows("-Hs --hardware --show"),
    "lsmem": _shows("-aPbJnrV -oS= --all --bytes --json --noheadings --output= --raw --split= --summary? --version"),
    "lslocks": _shows("-bJinoruV -op= --json --noheadings --notruncate --output= --pid= --raw --version"),
    "lsipc": _shows("-bcJlmnNpqrstV -i= --bytes --json --shmems --queues --semaphores --limits --version"),
    "dmidecode": _shows("-quV -tsH= --quiet --type= --string= --handle= --no-sysfs --version"),
    "modinfo": _shows(
        "-adlpn0V -Fk= --author --description --license --parameters --filename --field= --version", "text"
    ),
    "lshw": _shows(
        "-short -class= -C= -json -xml -html -businfo -numeric -sanitize -quiet -notime -version ", one_dash=True
    ),
    "hwinfo": _shows(
        "--short --cpu --disk --network --netcard --memory --bios --pci --usb --block --cdrom --gfxcard --sound"
    ),
    "lsscsi": _shows("-cdghiklLNpPstuvVw --classic --device --generic --size --transport --verbose --version"),
    "nvidia-smi": _shows(
        "-L -q -d= -i= --list-gpus --query --query-gpu= --format= --query-compute-apps=", one_dash=True
    ),
    "lastb": _shows("-adFiwxR -nstp= -# --fulltimes --limit= --since= --until= --present= --hostlast --ip", "text"),
    "infocmp": _shows("-1CgIlLTUVWwx -s=", "text"),
    "readelf": _shows(
        "-aAcdehIlLnrsStuVWD --all --file-header --headers --sections --segments --symbols --notes --wide --dynamic",
        "names",
    ),
    "nm": _shows(
        "-ABaCDegnopPrSsuvV -t= --demangle? --dynamic --defined-only --undefined-only --size-sort --print-size", "names"
    ),
    "gzip": _shows("-lv --list --verbose --version -V", "names"),
    "slabtop": _shows("-oV -ds= --once --delay= --sort= --version"),
    "numastat": _shows("-cmnsvzV -p="),
    "efibootmgr": _shows("-vV --verbose --version"),
    "grubby": _shows("--info= --default-kernel --default-index --default-title --version"),
    "mokutil": _shows("--sb-state --list-enrolled --list-new --version"),
    "faillog": _shows("-a -ut= --all --user= --time="),
    "udevadm": Program(
        "--version",
        commands={"info": _shows("-axr -qpn= --query= --attribute-walk --export --root --path= --name=", "text")},
        alone=True,
    ),
    "busctl": Program(
        "-q --no-pager --no-legend --user --system --list --version",
        commands=dict.fromkeys(
            ("list", "tree", "status"), _shows("--no-pager --no-legend --user --system --list", "text", most=1)
        ),
        alone=True,
    ),
    # words and numbers
    "shuf": Program(
        "-erz -ni= --echo --repeat --zero-terminated --head-count= --input-range= --version --help", "paths"
    ),
    "factor": _shows("-h --exponents --version --help", "text"),
    "lsinitramfs": _shows("-l", "paths"),
    "xmllint": _shows("--format --noout --html --recover --nonet --huge --xpath= --encode= --version", "paths"),
    "bc": Program("-hilqsvw --mathlib --quiet --standard --warn --version --help", "paths"),
    "numfmt": _shows(
        "-z -d= --from= --to= --from-unit= --to-unit= --suffix= --padding= --round= --format= --field= --grouping "
        "--invalid= --header? --delimiter= --zero-terminated --help --version",
        "text",
    ),
    "locate": _shows(
        "-AbceilLPpqrSHhVw0 -n= --all --basename --count --ignore-case --limit= --regexp= --statistics --existing",
        "text",
    ),
    "plocate": _shows("-AbcelipqrNVw0 -n= --all --basename --count --ignore-case --limit= --existing", "text"),
    "mlocate": _shows("-AbceilLPpqrSHhVw0 -n= --all --basename --count --ignore-case --limit= --existing", "text"),
    # network
    "ethtool": _shows(
        "-S -i -k -c -g -a -l -T -n -u -x -m -P -d -e --driver --statistics --show-features --show-coalesce "
        "--show-ring --show-pause --show-channels --show-time-stamping --show-permaddr --show-eee --show-fec "
        "--version --json",
        "text",
        most=1,
        one_dash=True,
    ),
    **dict.fromkeys(("iptables-save", "ip6tables-save"), _shows("-cV -t= --counters --table= --version")),
    "ipset": Program("-q", commands={name: _shows("-tsn -o=", "text") for name in ("list", "save", "version")}),
    "conntrack": _shows(
        "-LSCnjV -pfdsqrotum= -g? --dump --stats --count --proto= --src= --dst= --sport= --dport= --state= --output= "
        "--version",
        "text",
    ),
    "ipvsadm": _shows(
        "-Llnc --list --numeric --stats --rate --connection --timeout --daemon --exact --sort --persistent-conn"
    ),
    "firewall-cmd": _shows(
        "-V --state --version --list-all --list-all-zones --list-ports --list-services --list-protocols "
        "--list-interfaces --list-sources --list-rich-rules --list-icmp-blocks --get-active-zones --get-zones "
        "--get-default-zone "
        "--get-services --get-icmptypes --get-log-denied --get-zone-of-interface= --info-zone= --info-service= "
        "--zone= --permanent "
        "--query-masquerade --query-service= --query-port= --get-policies --list-all-policies --get-active-policies"
    ),
    "fail2ban-client": Program(
        "-V --version",
        commands={
            "status": _shows("", "text", most=1),
            "ping": _shows(""),
            "version": _shows(""),
            "banned": _shows("", "text"),
        },
        alone=False,
    ),
    "ntpq": _shows(_CLOCK + " --peers --numeric --command="),
    # services and their settings
    "systemd-analyze": Program(
        "--no-pager --user --system",
        commands={
            **dict.fromkeys(
                ("time", "blame", "unit-paths", "exit-status", "capability", "filesystems"),
                _shows("--no-pager --user --system", "text"),
            ),
            **dict.fromkeys(
                ("critical-chain", "security", "calendar", "timestamp", "timespan"),
                _shows("--no-pager --user --system --fuzz= --iterations=", "text"),
            ),
            "verify": _shows("--no-pager --user --system --man= --recursive-errors=", "paths"),
            "dot": _shows("--order --require", "text"),
        },
        alone=True,
    ),
    "systemd-cgls": _shows("-alku --all --full --no-pager --xattr= --cgroup-id= -l", "text"),
    "systemd-cgtop": _shows(
        "-b1prcitmkP -nd= --batch --raw --iterations= --delay= --depth= --order= --recursive=", "text"
    ),
    "systemd-detect-virt": _shows("-vcrq --vm --container --chroot --quiet --private-users --cvm"),
    "atq": _shows("-V -q="),
    "nginx": _shows("-vVtTqh"),
    "haproxy": _shows("-cvq -f:"),
    "visudo": _shows("-cqsV -f: --check --quiet --strict --file: --version"),
    "named-checkconf": _shows("-hvzjlx", "paths", most=1),
    "named-checkzone": Program("-dhjqv -cikmnrSTW=", "paths"),
    "logrotate": _shows("-dv --debug --verbose --version", "paths"),
    "postconf": _shows("-dnhHlmaAMPfx", "text"),
    "doveconf": _shows("-nahdN", "text"),
    "dovecot": _shows("-na --version"),
    "unbound-checkconf": _shows("-hf", "paths", most=1),
    "promtool": Program(
        "--version",
        commands={
            "check": Program(
                commands=dict.fromkeys(("config", "rules", "web-config"), _shows("--syntax-only --lint=", "paths"))
            )
        },
    ),
    "squid": _shows("-v -k= "),
    "php": Program("-vm --version --modules --ini", "none"),
    "php-fpm": _shows("-vmt --version --test"),
    "ssh-keygen": _shows("-lvB -f: -E= -F="),
    # packages
    "apt-mark": Program(
        commands=dict.fromkeys(("showhold", "showmanual", "showauto", "showinstall"), _shows("", "text"))
    ),
    **dict.fromkeys(
        ("dnf", "yum"),
        Program(
            "-Cq --cacheonly --quiet --version",
            commands={
                "list": _shows("-Cq --installed --cacheonly --quiet", "text"),
                "repolist": _shows("-v --all --enabled --disabled --cacheonly -C", "text"),
                "history": Program(commands={"list": _shows("", "text"), "info": _shows("", "text")}, alone=True),
            },
            alone=True,
        ),
    ),
    "pacman": _shows(
        "-QVcdegiklmnopqstu --query --version --info --list --explicit --deps --foreign --native --owns --search",
        "text",
    ),
    "apk": Program(
        "--version -V",
        commands={
            "info": _shows("-aLdswrRPtievW", "text"),
            "version": _shows("-l=", "none"),
            "list": _shows("-Ii --installed", "text"),
        },
    ),
    "update-alternatives": _shows("--display= --list= --query= --get-selections --version"),
    # containers and virtual machines
    "crictl": Program(
        commands={
            **dict.fromkeys(
                ("ps", "pods", "images", "stats", "statsp"),
                _shows("-aqlv -on= --all --quiet --output= --name= --namespace= --state= --label= --no-trunc", "text"),
            ),
            **dict.fromkeys(("version", "info"), _shows("-o= --output=")),
            "logs": _shows("-ft --follow --tail= --since= --timestamps", "text"),
        }
    ),
    "virsh": Program(
        "-rq --readonly --quiet --version",
        commands={
            **dict.fromkeys(
                (
                    *(
                        "list",
                        "net-list",
                        "pool-list",
                        "vol-list",
                        "nwfilter-list",
                        "secret-list",
                        "iface-list",
                        "snapshot-list",
                    ),
                    *(
                        "dominfo",
                        "domstate",
                        "domstats",
                        "domblklist",
                        "domblkinfo",
                        "domblkstat",
                        "domiflist",
                        "domifstat",
                    ),
                    *("domuuid", "domid", "domname", "domjobinfo", "domdisplay", "net-info"),
                    *(
                        "net-dhcp-leases",
                        "pool-info",
                        "vol-info",
                        "nodeinfo",
                        "nodememstats",
                        "nodecpustats",
                        "capabilities",
                    ),
                    *(
                        "version",
                        "uri",
                        "hostname",
                        "sysinfo",
                        "cpu-stats",
                        "vcpuinfo",
                        "vcpucount",
                        "dumpxml",
                        "net-dumpxml",
                    ),
                ),
                _shows(
                    "--all --inactive --name --table --uuid --title --details --state-running --persistent "
                    "--transient --total "
                    "--pool=",
                    "text",
                ),
            )
        },
    ),
    # databases
    "mysqladmin": _shows("-icuS= -sv --user= --socket= --sleep= --count= -V --version", "text"),
    "mariadb-admin": _shows("-icuS= -sv --user= --socket= --sleep= --count= -V --version", "text"),
    "pg_isready": _shows("-qV -ptU= --quiet --port= --timeout= --username= --version"),
    "pg_controldata": _shows("-V --version -D=", "text", most=1),
    # rights and audits
    "semanage": Program(
        commands=dict.fromkeys(
            ("port", "fcontext", "boolean", "login", "user", "module", "interface"),
            _shows("-lnC --list --noheading --locallist"),
        )
    ),
    "getsebool": _shows("-a", "text"),
    "ausearch": _shows(
        "-m= -ts= -te= -i -k= -ui= -ua= -x= -c= -p= -sv= -sc= -f= -a= -gi= -r --raw --format= -w -l -n= --just-one",
        "text",
        one_dash=True,
    ),
    "aureport": _shows(
        "--summary --failed --success -au -l -m -e -f -p -s -u -x -n -i -ts= -te= --auth --login --file --anomaly",
        "text",
        one_dash=True,
    ),
    "chage": _shows("-li --list --iso8601", "text", most=1),
    "faillock": _shows("--user="),
}


def _needs(*names: str) -> Callable[[Options], str]:
    def check(options: Options) -> str:
        return "" if options.has(*names) else f"without {' or '.join(names)} it does something else"

    return check


def _smartctl(options: Options) -> str:
    """Check ``smartctl``: ``-l scterc,70,70`` sets a time limit."""
    logs = [word for name, word in options.given if name in ("-l", "--log") and word is not None]
    fine = all(word.known and re.fullmatch(r"[a-z]+", word.text) for word in logs)
    reads = options.has(
        *[
            "-a",
            "-x",
            "-H",
            "-i",
            "-c",
            "-A",
            "-V",
            "-l",
            "--all",
            "--xall",
            "--health",
            "--info",
            "--attributes",
            "--log",
            "--scan",
            "--version",
        ]
    )
    return "" if fine and reads else "a log is not on the allowlist, or no reading option is given"


_NTP = re.compile(r"peers|lpeers|opeers|pe|rv|readvar|as|associations|sysinfo|kerninfo|sysstats|iostats|timerstats")


def _ntpq(options: Options) -> str:
    commands = [word for name, word in options.given if name in ("-c", "--command") and word is not None]
    fine = all(word.known and _NTP.fullmatch(word.text) for word in commands)
    asks = options.has("-p", "--peers") or commands
    return "" if fine and asks else "a command is missing or not on the allowlist"


def _only(*allowed: str) -> Callable[[Options], str]:
    """Return a check that each operand is one of these."""

    def check(options: Options) -> str:
        fine = bool(options.operands) and all(word.known and word.text in allowed for word in options.operands)
        return "" if fine or options.has("-V", "--version") else "a command is missing or not on the allowlist"

    return check


def _no_assignment(options: Options) -> str:
    fine = all(word.known and re.fullmatch(r"[\w.-]+", word.text) for word in options.operands)
    return "" if fine else "an operand may set a value"


def _below(option: str, directory: str) -> Callable[[Options], str]:
    """Return a check that settings files are below a directory: others may run programs, and errors show content."""

    def check(options: Options) -> str:
        files = [word for name, word in options.given if name == option]
        fine = all(word and word.known and word.text.startswith(directory) and ".." not in word.text for word in files)
        return "" if fine else f"{option} names a file that is not below {directory}"

    return check


def _haproxy(options: Options) -> str:
    return _needs("-c", "-v")(options) or _below("-f", "/etc/haproxy/")(options)


def _usual(*places: str) -> Callable[[Options], str]:
    """Return a check that operands are settings in their usual location: others may include files, shown in errors."""

    def check(options: Options) -> str:
        fine = all(word.known and word.text.startswith(places) and ".." not in word.text for word in options.operands)
        return "" if fine else f"a file is not at {' or '.join(places)}"

    return check


def _visudo(options: Options) -> str:
    files = ("-f", "--file")
    checks = _needs("-c", "--check", "-V", "--version")(options)
    return checks or next((why for name in files if (why := _below(name, "/etc/sudoers")(options))), "")


def _logrotate(options: Options) -> str:
    return _needs("-d", "--debug", "--version")(options) or _usual("/etc/logrotate")(options)


_ZONES = ("/etc/bind/", "/etc/named/", "/var/named/", "/var/lib/bind/", "/var/cache/bind/")


def _zone(options: Options) -> str:
    file = options.operands[1:]
    fine = len(file) == 1 and file[0].known and file[0].text.startswith(_ZONES) and ".." not in file[0].text
    return "" if fine else "the zone file is not in a usual location"


def _no_response_file(options: Options) -> str:
    texts = [word.text if word.known else word.lead for word in options.operands]
    return "a word may be @FILE, a file with further options" if any(text[:1] in ("@", "") for text in texts) else ""


def _local_image(options: Options) -> str:
    fine = all(word.known and re.fullmatch(r"[\w./-]+", word.text) for word in options.operands)
    return "" if fine else "the image may be on another host"


def _virsh_words(options: Options) -> str:
    fine = all(word.known and re.fullmatch(r"[\w.:@/-]+", word.text) for word in options.operands)
    return "" if fine else "a word may start another command"


def _dnf_list(options: Options) -> str:
    first = options.operands[0].text if options.operands else ""
    return "" if first == "installed" or options.has("--installed") else "without 'installed' it uses the network"


def _squid(options: Options) -> str:
    word = options.value("-k")
    parses = word is not None and word.known and word.text == "parse"
    return "" if parses or (word is None and options.has("-v")) else "it may signal squid"


_STATUS = ("status", "extended-status", "processlist", "ping", "version", "variables")

HOST_CHECKS: Mapping[str, Callable[[Options], str]] = {
    "fdisk": _needs("-l", "-x", "--list", "--list-details", "-V", "--version"),
    "sfdisk": _needs(
        *[
            "-d",
            "-J",
            "-l",
            "-F",
            "-V",
            "-s",
            "-T",
            "--dump",
            "--json",
            "--list",
            "--list-free",
            "--verify",
            "--show-size",
            "--list-types",
        ]
    ),
    "smartctl": _smartctl,
    "hdparm": _needs("-i", "-I", "-g", "-C", "-V"),
    "mdadm": _needs(*["-D", "-E", "-Q", "-V", "--detail", "--examine", "--query", "--detail-platform", "--version"]),
    "tune2fs": _needs("-l"),
    "dumpe2fs": _needs("-h", "-b", "-g", "-V"),
    "numactl": _needs("-H", "-s", "--hardware", "--show"),
    "gzip": _needs("-l", "--list", "-V", "--version"),
    "readelf": _no_response_file,
    "nm": _no_response_file,
    "conntrack": _needs("-L", "-S", "-C", "-V", "--dump", "--stats", "--count", "--version"),
    "ipvsadm": _needs("-L", "-l", "--list"),
    "ntpq": _ntpq,
    "nginx": _needs("-v", "-V", "-t", "-T", "-h"),
    "haproxy": _haproxy,
    "visudo": _visudo,
    "logrotate": _logrotate,
    "named-checkconf": _usual("/etc/bind/", "/etc/named"),
    "unbound-checkconf": _usual("/etc/unbound/"),
    **{f"promtool check {name}": _usual("/etc/prometheus/") for name in ("config", "rules", "web-config")},
    "postconf": _no_assignment,
    "dovecot": _needs("-n", "-a", "--version"),
    "named-checkzone": _zone,
    "squid": _squid,
    "php": _needs("-v", "-m", "--version", "--modules", "--ini"),
    "php-fpm": _needs("-v", "-m", "-t", "--version", "--test"),
    "ssh-keygen": _needs("-l", "-F"),
    "dnf list": _dnf_list,
    "yum list": _dnf_list,
    "pacman": _needs("-Q", "--query", "-V", "--version"),
    "update-alternatives": _needs("--display", "--list", "--query", "--get-selections", "--version"),
    "qemu-img info": _local_image,
    "mysqladmin": _only(*_STATUS),
    "mariadb-admin": _only(*_STATUS),
    **{
        f"semanage {name}": _needs("-l", "--list")
        for name in ("port", "fcontext", "boolean", "login", "user", "module", "interface")
    },
    "chage": _needs("-l", "--list"),
    "faillock": _needs("--user"),
    **{f"virsh {name}": _virsh_words for name in HOST_PROGRAMS["virsh"].commands},
}
