"""Git commands, and the queries that list the files whose content a git command would show. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from .words import Options, Word, grammar, loose_values, parse_options

__all__ = [
    "GIT_COMMANDS",
    "UNKNOWN_OPTIONS",
    "ShownRequest",
    "colon_at",
    "object_names",
    "shown_request",
]


# -- Built-in git commands: any other name may be an alias of the repository.


_COMMANDS = (
    "add am annotate apply archive bisect blame branch bugreport bundle cat-file check-attr check-ignore "
    "check-mailmap check-ref-format checkout checkout-index cherry cherry-pick clean clone column commit "
    "commit-graph commit-tree config count-objects credential credential-cache credential-store daemon describe "
    "diagnose diff diff-files diff-index diff-tree difftool fast-export fast-import fetch fetch-pack "
    "filter-branch fmt-merge-msg for-each-ref for-each-repo format-patch fsck fsck-objects gc get-tar-commit-id "
    "grep hash-object help hook http-backend http-fetch http-push imap-send index-pack init init-db instaweb "
    "interpret-trailers log ls-files ls-remote ls-tree mailinfo mailsplit maintenance merge merge-base merge-file "
    "merge-index merge-octopus merge-one-file merge-ours merge-recursive merge-recursive-ours "
    "merge-recursive-theirs merge-resolve merge-subtree merge-tree mergetool mktag mktree multi-pack-index mv "
    "name-rev notes pack-objects pack-redundant pack-refs patch-id pickaxe prune prune-packed pull push "
    "quiltimport range-diff read-tree rebase receive-pack reflog remote remote-ext remote-fd remote-ftp "
    "remote-ftps remote-http remote-https repack replace request-pull rerere reset restore rev-list rev-parse "
    "revert rm send-pack shell shortlog show show-branch show-index show-ref sparse-checkout stage stash status "
    "stripspace submodule subtree switch symbolic-ref tag unpack-file unpack-objects update-index update-ref "
    "update-server-info upload-archive upload-pack var verify-commit verify-pack verify-tag version whatchanged "
    "worktree write-tree"
)
GIT_COMMANDS = frozenset(_COMMANDS.split())
"""The commands of git 2.39; an alias cannot replace them."""


# -- Queries for the files whose content a git command would show. Pure.
#
# For a command that only reads, the query is the same command with ``--name-only``. For one that does more
# (``format-patch``, ``archive``, ``add -p``), it is a harmless command that lists the same files, built only from the
# revisions and paths.


_SHOWING = frozenset({"show", "diff"})
"""These show content unless an option turns it off; the others only with an option."""
_ON_REQUEST = frozenset(
    [
        *(("log",), ("whatchanged",), ("diff-tree",), ("diff-index",), ("diff-files",), ("stash", "show")),
        *(("stash", "list"), ("reflog",), ("reflog", "show")),
    ]
)
_LOGS = frozenset({"log", "show", "whatchanged", "reflog"})
_PATCH = re.compile(
    r"-[A-Za-z0-9]*[puUcmWC].*|--(?:patch|unified|word-diff|color-words|binary|cc|function-context|pickaxe|remerge|dd"
    r"|check|submodule=diff).*"
)
_NAMES_ONLY = frozenset({"--name-only", "--name-status", "--no-index"})
"""With one of these no content is shown, whatever the other options are."""
_NO_PATCH = frozenset({"--no-patch", "--quiet", "-s"})
"""Overridden by an option that shows a patch, in some versions in any order."""
_GREP_NAMES = re.compile(r"-[^-efABCmO]*[lLcq].*|--(?:name-only|files-with|count|quiet).*")
"""No letter before these takes the rest of the word as its value (``-iecret``)."""
_SUMMARY = re.compile(r"--(?:stat|numstat|shortstat|dirstat|summary|raw)(?:=.*)?")
_DROPPED = re.compile(r"--(?:format|pretty|oneline|graph|color|no-color|decorate|relative|abbrev-commit|check)(?:=.*)?")
"""Options that would print other text between the names or shorten them."""
_WITH_VALUE = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env"})
_HARMLESS_LEADING = frozenset({"--no-pager", "-P", "-p", "--paginate", "--no-optional-locks", "--literal-pathspecs"})
UNKNOWN_OPTIONS = "git cannot list the files that it would show with these options or variables"
_NAMES = ("--name-only", "-z")
_WORKING = (("diff", *_NAMES), ("diff", "--cached", *_NAMES))
"""The changes in the working directory and the staged changes."""


@dataclass(frozen=True, slots=True)
class ShownRequest:
    """A query for the files whose content a git command would show.

    ``leading``: the options before the sub-command. ``names``: the commands that list the files; empty if the words
    name all of them. ``objects``: operands that may be objects without a file name, such as the hash of a file.
    ``made``: the listing commands are built by harness and must succeed. ``alias``: a name that is not a built-in git
    command. ``reason``: why the files cannot be determined.
    """

    leading: tuple[str, ...]
    verb: str
    names: tuple[tuple[str, ...], ...] = ()
    objects: tuple[str, ...] = ()
    made: bool = False
    alias: str = ""
    reason: str = ""


def shown_request(argv: Sequence[str]) -> ShownRequest | None:
    """Return the query for a command; None if it shows no content.

    Args:
        argv: the words of the simple command.
    """
    leading, verb, words = _parts(argv)
    if not verb:
        return None
    made = _MADE.get(verb[0])
    if made is not None and (found := made(verb, words)) is not None:
        return replace(found, leading=leading, reason=found.reason or _leading_reason(leading))
    if made is None and verb[0] not in GIT_COMMANDS:
        return ShownRequest(leading, verb[0], made=True, alias=verb[0])
    return _same_command(leading, verb, words) if _shows(verb, words) else None


def _leading_reason(leading: Sequence[str]) -> str:
    """Return why a built listing command may use another repository or configuration; empty if it does not."""
    options = [word for word in leading if word.startswith("-")]
    return "" if set(options) <= {*_HARMLESS_LEADING, "-C"} else UNKNOWN_OPTIONS


def _parts(argv: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the options of git itself, the sub-command, and the words after it."""
    name = posixpath.basename(argv[0]) if argv else ""
    if name.startswith("git-"):  # /usr/lib/git-core/git-show
        argv = ("git", name.removeprefix("git-"), *argv[1:])
    elif name != "git":
        return (), (), ()
    begin = 1
    while begin < len(argv) and argv[begin].startswith("-"):
        begin += 2 if argv[begin] in _WITH_VALUE else 1
    rest = tuple(argv[begin:])
    count = 2 if rest[:1] == ("stash",) or rest[:2] in (("reflog", "show"), ("bundle", "create")) else 1
    return tuple(argv[1:begin]), rest[:count], rest[count:]


# -- commands that only read: the same with --name-only


def _same_command(leading: tuple[str, ...], verb: tuple[str, ...], words: tuple[str, ...]) -> ShownRequest:
    """Build the query for a reading command; operands with a colon (``HEAD:FILE``) are checked by their words."""
    ended = words.index("--") if "--" in words else len(words)
    operands = [word for word in words[:ended] if not word.startswith("-")]
    if verb[0] in ("cat-file", "unpack-file"):
        return ShownRequest(leading, verb[0], (), tuple(operands))
    if verb[0] == "grep" and not any(re.match(r"-[^-]*[ef]|--(?:regexp|file)", word) for word in words[:ended]):
        operands = operands[1:]  # the first one is the pattern
    names = _names_command(verb, words[:ended], words[ended:])
    return ShownRequest(leading, verb[0], (names,) if names else (), tuple(operands))


def _names_command(verb: Sequence[str], words: Sequence[str], paths: Sequence[str]) -> tuple[str, ...]:
    """Return the command that lists the files shown; empty if only operands with a colon name them."""
    if verb[0] == "grep":
        return (*verb, "--name-only", "-z", "--full-name", *words, *paths)
    kept = [word for word in words if not (word in _NO_PATCH or _DROPPED.fullmatch(word) or colon_at(word) >= 0)]
    if any(colon_at(word) >= 0 for word in words) and all(word.startswith("-") for word in kept):
        return ()
    plain = ["--format="] if verb[0] in _LOGS or tuple(verb) == ("stash", "list") else []
    extra = ("-r",) if verb[0] == "diff-tree" else ()
    return (*verb, *_NAMES, *extra, *plain, *kept, *paths)


def _shows(verb: tuple[str, ...], words: Sequence[str]) -> bool:
    options = [word for word in words[: words.index("--") if "--" in words else len(words)] if word.startswith("-")]
    if verb[0] == "grep":
        return "--no-index" not in options and not any(map(_GREP_NAMES.fullmatch, options))
    if verb[0] == "cat-file":
        return not any(re.fullmatch(r"-[tse]|--batch-check.*", option) for option in options)
    if not _NAMES_ONLY.isdisjoint(options):
        return False
    asked = any(map(_PATCH.fullmatch, options))
    if verb[0] in _SHOWING:
        silent = not _NO_PATCH.isdisjoint(options) or any(map(_SUMMARY.fullmatch, options))
        return asked or not silent
    return verb[0] == "unpack-file" or (asked and verb in _ON_REQUEST)


def colon_at(word: str) -> int:
    """Return the index of the colon of ``COMMIT:FILE`` or ``:FILE``; -1 in other words.

    As in git, colons in braces (``HEAD@{12:00}``, ``HEAD^{/area: x}``), of ``:/text`` and of ``:!pattern`` do not
    count.
    """
    if word.startswith(":"):
        return -1 if word[1:2] in tuple("/!(^") else 0
    depth = 0
    for place, letter in enumerate("" if word.startswith("-") else word):
        depth += (letter == "{") - (letter == "}")
        if letter == ":" and depth <= 0:
            return place
    return -1


def object_names(operands: Sequence[str]) -> tuple[str, ...]:
    """Return the objects whose types show whether the operands include content without a file name."""
    parts = [part for word in operands for part in re.split(r"\.{2,3}", word.lstrip("^")) if part]
    names: list[str] = []
    for part in parts:
        colon = colon_at(part)
        names += [part, f"{part}^{{}}"] if colon < 0 else [part, part[:colon] or "HEAD"]
    return tuple(name for name in names if "\n" not in name)


# -- commands that do more: harmless ones that list the same files


def _options(words: Sequence[str], spec: str) -> Options:
    return parse_options([Word.of(word) for word in words], grammar(spec))


def _made(verb: str, *names: tuple[str, ...], objects: Sequence[str] = ()) -> ShownRequest:
    return ShownRequest((), verb, names, tuple(objects), made=True)


def _refused(verb: str, reason: str = UNKNOWN_OPTIONS) -> ShownRequest:
    return ShownRequest((), verb, reason=reason)


def _logged(*revisions: str) -> tuple[str, ...]:
    return ("log", "--format=", *_NAMES, "-m", *revisions)


def _format_patch(verb: tuple[str, ...], words: Sequence[str]) -> ShownRequest:
    """List the files of ``format-patch``: with ``HEAD~2`` newer commits; with ``-1 HASH`` and ``--root`` up to it."""
    given = _options(
        words,
        "-# -nNksqp -ovU= --stdout --root --numbered --no-numbered --keep-subject --signoff --cover-letter --no-stat "
        "--output-directory= --subject-prefix= --start-number= --reroll-count= --suffix= --to= --cc= --thread? "
        "--no-thread --no-signature --signature= --zero-commit --binary --no-binary --rfc? --attach? --inline? --quiet "
        "--no-attach --max-count= --filename-max-length= --encode-email-headers --no-cover-letter --base= "
        "--from? --stat?",
    )
    if given.reason:
        return _refused(verb[0])
    count = given.value("-#", "--max-count")
    revisions = [word.text for word in given.operands]
    if count is None and not given.has("--root") and not any(".." in word for word in revisions):
        revisions = [f"{revisions[0]}..HEAD" if revisions else "@{upstream}..HEAD", *revisions[1:]]
    return _made(verb[0], _logged(*([f"-{count.text}"] if count is not None else []), *(revisions or ["HEAD"])))


def _archive(verb: tuple[str, ...], words: Sequence[str]) -> ShownRequest | None:
    given = _options(
        words,
        "-# -lv -o= --output= --format= --prefix= --worktree-attributes --add-file= --mtime= --list --verbose",
    )
    if given.has("-l", "--list"):
        return None
    if given.reason or not given.operands:
        return _refused(verb[0])
    tree, *paths = (word.text for word in given.operands)
    return _made(verb[0], ("ls-tree", "-r", *_NAMES, "--full-name", tree, *paths), objects=[tree])


def _packed(verb: tuple[str, ...], words: Sequence[str]) -> ShownRequest | None:
    """List the files reachable from revisions: ``bundle create FILE``, ``fast-export``."""
    if verb == ("bundle",):
        return None
    given = _options(
        words,
        "-# -qMC --quiet --progress --all-progress --version= --all --branches? --tags? --remotes? --since= --until= "
        "--not --stdin --signed-tags= --tag-of-filtered-object= --no-data --full-tree --reencode= --export-marks= "
        "--import-marks= --show-original-ids --use-done-feature --max-count= --first-parent",
    )
    if given.has("--no-data"):
        return None
    if given.reason or given.has("--stdin"):
        return _refused(verb[0])
    skipped = 1 if verb[0] == "bundle" else 0
    asked = [name for name, _ in given.given if name in ("--all", "--branches", "--tags", "--remotes")]
    revisions = [*asked, *(word.text for word in given.operands[skipped:])]
    return _made(verb[0], ("rev-list", "--objects", *(revisions or ["--all"])))


def _range_diff(verb: tuple[str, ...], words: Sequence[str]) -> ShownRequest | None:
    given = _options(
        words, "-s --creation-factor= --no-dual-color --left-only --right-only --no-notes --no-patch --stat"
    )
    if given.has("-s", "--no-patch"):
        return None
    revisions = [word.text for word in given.operands]
    if len(revisions) == 3:
        revisions = [f"{revisions[0]}..{end}" for end in revisions[1:]]
    if given.reason or not revisions or not all(".." in word for word in revisions):
        return _refused(verb[0])
    return _made(verb[0], *(_logged(word) for word in revisions))


def _difftool(verb: tuple[str, ...], words: Sequence[str]) -> ShownRequest:
    given = _options(
        words,
        "-dyg -tx= --tool= --extcmd= --dir-diff --no-prompt --prompt --gui --no-gui --cached --staged --symlinks "
        "--no-symlinks --tool-help --trust-exit-code --no-trust-exit-code",
    )
    if given.reason:
        return _refused(verb[0])
    staged = ["--cached"] if given.has("--cached", "--staged") else []
    operands = [word.text for word in given.operands]
    return _made(verb[0], ("diff", *_NAMES, *staged, *operands), objects=operands)


def _interactive(verb: tuple[str, ...], words: Sequence[str]) -> ShownRequest | None:
    """List the changed files that ``add -p`` or ``checkout -p COMMIT`` shows hunk by hunk."""
    if len(verb) > 1:  # stash push -p, stash -p
        if verb[1] not in ("push", "save") and not verb[1].startswith("-"):
            return None
        words = (*verb[1:], *words)
    ended = words.index("--") if "--" in words else len(words)
    letters, longs = _PART_BY_PART[verb[0]]
    asked = any(
        any(len(word) > 4 and long.startswith(word.partition("=")[0]) for long in longs)
        if word.startswith("--")
        else word.startswith("-") and not letters.isdisjoint(word)
        for word in words[:ended]
    )
    if not asked:
        return None
    sources = loose_values(words[:ended], "-s --source")
    if verb[0] in ("checkout", "reset", "switch"):
        sources = [word for word in words[:ended] if not word.startswith("-")][:1]
    return _made(verb[0], *_WORKING, *(("diff", *_NAMES, source) for source in sources))


_PART_BY_PART: Mapping[str, tuple[frozenset[str], tuple[str, ...]]] = {
    **dict.fromkeys(("add", "stage"), (frozenset("pie"), ("--patch", "--interactive", "--edit"))),
    **dict.fromkeys(("checkout", "restore", "reset", "stash", "switch"), (frozenset("p"), ("--patch",))),
    "commit": (frozenset("pv"), ("--patch", "--interactive", "--verbose")),
    "status": (frozenset("v"), ("--verbose",)),
}


def _refusing(*options: str) -> Callable[[tuple[str, ...], Sequence[str]], ShownRequest | None]:
    """Return a reader for a command that may show unknown files: always, or with one of these options."""

    def read(verb: tuple[str, ...], words: Sequence[str]) -> ShownRequest | None:
        said = not options or any(word.startswith(option) for word in words for option in options)
        return _refused(verb[0], f"git {verb[0]} may show any file of the repository") if said else None

    return read


_MADE: Mapping[str, Callable[[tuple[str, ...], Sequence[str]], ShownRequest | None]] = {
    "format-patch": _format_patch,
    "archive": _archive,
    **dict.fromkeys(("bundle", "fast-export"), _packed),
    "range-diff": _range_diff,
    "difftool": _difftool,
    **dict.fromkeys(_PART_BY_PART, _interactive),
    **dict.fromkeys(("send-email", "imap-send", "merge-tree", "pack-objects", "upload-archive"), _refusing()),
    **dict.fromkeys(("am", "rebase"), _refusing("--show-cur")),
    "request-pull": _refusing("-p"),
    "rerere": _refusing("diff"),
    "config": _refusing("--blob"),
    "checkout-index": _refusing("--temp", "--prefix"),
    "fast-import": _refusing("--cat-blob-fd"),
}
