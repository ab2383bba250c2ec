"""Commands that ask other hosts for something small: names, reachability, headers, certificates. Pure.

They change nothing, but what they ask for leaves the host, so they run unasked only where the settings say so. All of
their words must be known, and what they would send or write besides the question is not on the list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from .shelloptions import Options, grammar, parse_options
from .shelltypes import Found, Word

__all__ = ["LOOKUPS", "lookup_reason"]

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


def _dig(options: Options, found: Found) -> bool:
    plain = [word for word in options.operands if not (word.known and _DIG_WORD.fullmatch(word.text))]
    names = all(word.known and _HOST.fullmatch(word.text) for word in plain)
    return names and _values_fit(options, _HOST, "-x", "-t", "-q", "-c", "-p")


def _named(options: Options, found: Found) -> bool:
    return _hosts(options, most=2) and _values_fit(options, _HOST, "-t", "-W", "-R", "-c")


def _asks_name(options: Options, found: Found) -> bool:
    return _hosts(options, most=2) and all(
        word is None or (word.known and _HOST.fullmatch(word.text)) for _, word in options.given
    )


def _ping(options: Options, found: Found) -> bool:
    return (
        options.has("-c") and _hosts(options) and _values_fit(options, _COUNT, "-c") and _numbers(options, "-I", "-M")
    )


def _numbers(options: Options, *but: str) -> bool:
    return all(
        word is None or (word.known and (_NUMBER if name not in but else _HOST).fullmatch(word.text))
        for name, word in options.given
    )


def _route(options: Options, found: Found) -> bool:
    return _hosts(options) and _numbers(options)


def _mtr(options: Options, found: Found) -> bool:
    return options.has("-r", "-w", "--report", "--report-wide") and _hosts(options) and _numbers(options)


def _curl(options: Options, found: Found) -> bool:
    """Only the headers, or nothing of the answer but its code and times."""
    urls = options.operands
    outputs = [word for name, word in options.given if name in ("-o", "--output") and word is not None]
    drops = bool(outputs) and all(word.known and word.text == "/dev/null" for word in outputs)
    answers = options.has("-I", "--head") or drops
    fine = len(urls) == 1 and urls[0].known and _URL.fullmatch(urls[0].text) is not None
    formats = _values_fit(options, _FORMAT, "-w", "--write-out")
    numbers = _values_fit(options, _NUMBER, "-m", "--max-time", "--connect-timeout", "--retry")
    return answers and fine and formats and numbers and (drops or not outputs)


def _certificate(options: Options, found: Found) -> bool:
    """What it reads is sent to the other host: that must be nothing."""
    connects = options.value("-connect")
    fine = all(word is None or (word.known and re.fullmatch(r"[\w.:%,/-]+", word.text)) for _, word in options.given)
    return connects is not None and not options.operands and fine and _reads_nothing(found)


def _reads_nothing(found: Found) -> bool:
    read = [item.word for item in found.redirects if item.word is not None and not item.writes]
    if read:
        return all(word.known and word.text == "/dev/null" for word in read)
    source = [word.text for word in found.input.source]
    return found.input.kind == "terminal" or source in (["echo"], ["echo", ""], ["echo", "Q"], ["true"], [":"])


def _port(options: Options, found: Found) -> bool:
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


def _clock(options: Options, found: Found) -> bool:
    return options.has("-q") and _hosts(options, most=4)


_Fits = Callable[[Options, Found], bool]
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
"""Programs with the options that they may have, and what their words must be."""
_CLIENT = (
    "-connect= -servername= -showcerts -brief -quiet -no_ign_eof -starttls= -alpn= -tls1 -tls1_1 -tls1_2 -tls1_3 "
    "-status "
    "-verify= -verify_return_error -4 -6 -ign_eof -crlf -verify_hostname="
)
_TYPES = re.compile(r"-(?:type|query|q|querytype|timeout|retry|port)=[\w.]+")


def lookup_reason(name: str, words: Sequence[Word], found: Found) -> str | None:
    """Why a command does more than to look something up elsewhere; empty when it does not, None for other programs."""
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
    return "" if fits else f"{name}: a word that is not on the list, or only known at run time"
