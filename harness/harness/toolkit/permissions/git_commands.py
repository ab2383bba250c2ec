"""The names of the commands of git: what is none of these may be an alias of the repository."""

from __future__ import annotations

__all__ = ["GIT_COMMANDS"]

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
"""Those that git 2.39 itself has; no alias takes their place."""
