"""Removing what is beyond the limits: ended jobs, and the logs of panes that no kept job refers to any more."""

from __future__ import annotations

__all__ = ["IF_DUE", "clean_script"]

MOST_JOBS = 10_000
"""Ended jobs beyond this many are removed by clean(), whatever their size."""
DAY = 86400

IF_DUE = r"""
cd "$hx_jobs" || exit 0
[ -z "$(find . ! -name . -prune -name cleaned -mmin -10 2>/dev/null)" ] || exit 0
(umask 077; : >cleaned)
"""
"""Before the script: end when it has run in the last ten minutes, whoever ran it. Without ``-mmin`` it always runs."""

# Facts for the judge, one in a line: "A uid" a pane that lives; "N uid" a pane's directory that may be new;
# "O path" beyond the age; "E n" ended; "G n" has a process; "S blocks n.suffix"; "L blocks path"; "D uid"; "R n log".
_FACTS = r"""
hx_panes=$hx_root/panes
hx_live() {
  { printf '%s\n' __SOCKET__; find "$hx_panes" -name socket -exec cat {} + 2>/dev/null; } | sort -u |
  while read -r s; do tmux -L "$s" list-panes -a -F "A $hx_living" </dev/null 2>/dev/null; done
  for d in "$hx_panes"/*/alive; do
    d=${d%/alive} p=
    [ -e "$d/alive" ] || continue
    { read -r p <"$d/pid"; } 2>/dev/null
    case $p in
      '' | *[!0-9]*) [ -n "$(find "$d" -prune -mtime +__DAYS__)" ] || echo "A ${d##*/}" ;;
      *) ! kill -0 "$p" 2>/dev/null || echo "A ${d##*/}" ;;
    esac
  done
}
hx_unended() {
  find . -name '[0-9]*.cmd' -size +0 -mtime +__DAYS__ | while read -r f; do
    n=${f#./} n=${n%.cmd}
    [ -s "$n.exit" ] && continue
    if [ -e "$n.pid" ] || [ -e "$n.out" ]; then ! hx_going "$n" || echo "G $n"; fi
  done
}
hx_facts() {
  hx_live
  hx_unended
  find . -name '[0-9]*.exit' -size +0 | sed 's/^\.\//E /; s/\.exit$//'
  find . -name '[0-9]*.cmd' -mtime +__DAYS__ | sed 's/^\.\//C /; s/\.cmd$//'
  find . -name '[0-9]*.exit' -mtime +__DAYS__ | sed 's/^\.\//O /; s/\.exit$//'
  ls -s -k 2>/dev/null | sed -n 's/^ *\([0-9][0-9]*\) \([0-9][0-9]*\)\.[a-z]*$/S \1 \2/p'
  (
    cd "$hx_panes" || exit 0
    find . ! -name . -prune -type d | sed 's/^\.\//D /'
    { find . ! -name . -prune -type d ! -mmin +10 2>/dev/null || find . ! -name . -prune -type d ! -mtime +0; } |
    sed 's/^\.\//N /'
    find . -name 'log.[0-9]*' -mtime +__DAYS__ | sed 's/^\.\//P /'
    find . -name 'log.[0-9]*' -exec ls -s -k {} + | sed -n 's/^ *\([0-9][0-9]*\) \.\//L \1 /p'
  )
  ls | sed -n '/^[0-9][0-9]*\.cmd$/p' | xargs awk '
    FNR == 1 {
      n = FILENAME; sub(/\.cmd$/, "", n); sub(/ #[|] .*/, ""); log_ = "-"
      if (match($0, / #% log: panes\/[A-Za-z0-9]+\/log\.[0-9]+ /)) log_ = substr($0, RSTART + 15, RLENGTH - 16)
      print "R", n, log_, ($0 ~ /^hxc /) ? "pane" : "plain"
    }' /dev/null | sort -k2,2rn
}
"""

# What goes: "job n", "log path", "dir uid". A log that a kept job refers to stays, and the newest of a live pane.
_JUDGE = r"""
function uid_of(path) { sub(/\/.*/, "", path); return path }
function number_of(path) { sub(/.*log\./, "", path); return path + 0 }
$1 == "A" && $2 != "" { alive[$2] = 1 }
$1 == "N" { recent[$2] = 1 }
$1 == "D" && $2 ~ /^[A-Za-z0-9]+$/ { folder[$2] = 1 }
$1 == "E" { ended[$2] = 1 }
$1 == "C" { oldcmd[$2] = 1 }
$1 == "G" { going[$2] = 1 }
$1 == "O" { old[$2] = 1 }
$1 == "P" { oldlog[$2] = 1 }
$1 == "S" { size[$3] += $2 }
$1 == "L" && $3 ~ /^[A-Za-z0-9]+\/log\.[0-9]+$/ {
  log_[$3] = $2; u = uid_of($3)
  if (!(u in newest) || number_of($3) > newest[u]) newest[u] = number_of($3)
}
$1 == "R" {
  n = $2; path = $3; lost = 0; total += size[n]; count++
  if (path != "-" && !(path in counted)) { counted[path] = 1; total += log_[path] }
  if (!(n in ended) && (n in oldcmd))
    lost = ($4 == "pane") ? (path != "-" && !(uid_of(path) in alive)) : !(n in going)
  if (lost || ((n in ended) && ((n in old) || total > limit || count > most))) print "job", n
  else if (path != "-") { wanted[path] = 1; wantdir[uid_of(path)] = 1 }
}
END {
  for (path in log_) if (!(path in counted)) total += log_[path]
  for (path in log_) {
    u = uid_of(path)
    if (path in wanted) continue
    if ((u in alive) && number_of(path) == newest[u]) continue
    if ((u in recent) && !(path in oldlog)) { wantdir[u] = 1; continue }
    if ((path in oldlog) || (path in counted) || total > limit) print "log", path
    else wantdir[u] = 1
  }
  for (u in folder) if (!(u in alive) && !(u in recent) && !(u in wantdir)) print "dir", u
}
"""

_CLEAN = r"""
cd "$hx_jobs" || exit 0
hx_socket=__SOCKET__
hx_top=$(ls | sed -n 's/^\([0-9][0-9]*\)\.cmd$/\1/p' | sort -n | tail -n 1)
hx_last=0
{ read -r hx_last <last; } 2>/dev/null
case $hx_last in ''|*[!0-9]*) hx_last=0 ;; esac
[ "${hx_top:-0}" -le "$hx_last" ] || (umask 077; printf '%s\n' "$hx_top" >last)
find . -name '[0-9]*.cmd' -size 0 -mtime +1 -exec rm -f {} +
find . -name '[0-9]*.void' -mtime +1 -exec rm -f {} +
hx_conclude_all
hx_facts | awk -v limit=__KILOBYTES__ -v most=__JOBS__ '__JUDGE__' | while read -r kind name; do
  case $kind in
    job)
      rm -f "$name.cmd" "$name.sh" "$name.run" "$name.out" "$name.err" "$name.in" "$name.pid" "$name.why" \
        "$name.cap" "$name.seen" "$name.outgap" "$name.errgap" "$name.size" "$name.exit" && printf 'x' ;;
    log) rm -f "$hx_panes/$name" ;;
    dir) rm -rf "$hx_panes/$name" ;;
  esac
done
for f in "$hx_root/run/"*.*; do
  case ${f##*.} in *[!0-9]*) ;; *) kill -0 "${f##*.}" 2>/dev/null || rm -f "$f" ;; esac
done
"""


def clean_script(max_age: float, max_bytes: int, socket: str) -> str:
    """The script that removes what is beyond the limits (seconds, bytes); it writes one letter for each job.

    ``socket`` is a tmux server to ask which panes live, already quoted for a shell; panes tell of others themselves.
    """
    days = max(0, int(max_age // DAY) - 1)
    fields = {
        "__JUDGE__": _JUDGE,
        "__SOCKET__": socket,
        "__DAYS__": str(days),
        "__KILOBYTES__": str(max_bytes // 1024),
        "__JOBS__": str(MOST_JOBS),
    }
    text = _FACTS + _CLEAN
    for name, value in fields.items():
        text = text.replace(name, value)
    return text
