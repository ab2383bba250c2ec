# Runs a job's command in a fresh sh whose standard output and standard error are files, and shows people what it writes.
# Arguments: the job's files up to the dot; then a program that becomes the command, else the job's own text is run.
# Everything that it starts is waited for: in a container often nobody else would.
# Nothing stands between the command and its files: what is shown is read from them, five times a second at first and
# then once, and the rest when the command has ended. Of much output at once the end is shown. Who keeps the files
# within their limit learns from N.seen that this lives.
hx_job=$1 hx_out=0 hx_err=0 hx_most=65536
shift
hx_umask=$(umask)
umask 077
: >"$hx_job.out" && : >"$hx_job.err" || exit 1
if (: >/dev/tty) 2>/dev/null; then exec 3>/dev/tty; else exec 3>&1; fi
hx_part() {
  hx_size=$(($(wc -c <"$1")))
  [ "$hx_size" -gt "$2" ] || return 0
  if [ $((hx_size - $2)) -gt "$hx_most" ]; then
    printf '\n[harness: %s bytes more are not shown here]\n' $((hx_size - $2 - hx_most)) >&3
    set -- "$1" $((hx_size - hx_most))
  fi
  tail -c "+$(($2 + 1))" "$1" | head -c $((hx_size - $2)) >&3
}
hx_show() {
  hx_part "$hx_job.out" "$hx_out"
  hx_out=$hx_size
  hx_part "$hx_job.err" "$hx_err"
  hx_err=$hx_size
}
hx_follow() {
  hx_stop= hx_rounds=0 hx_pause=0.2
  trap 'hx_stop=1' TERM
  while [ -z "$hx_stop" ]; do
    sleep "$hx_pause" </dev/null >/dev/null 3>&- &
    hx_nap=$!
    wait "$hx_nap" || [ -n "$hx_stop" ] || hx_pause=1
    hx_show
    echo "$hx_out $hx_err $$" >"$hx_job.seen"
    hx_rounds=$((hx_rounds + 1))
    [ "$hx_rounds" -lt 25 ] || hx_pause=1
  done
  kill "$hx_nap"
  wait "$hx_nap"
}
hx_follow </dev/null >/dev/null 2>&1 &
hx_follower=$!
trap : INT QUIT
umask "$hx_umask"
if [ "$#" -gt 0 ]; then
  "$@" >"$hx_job.out" 2>"$hx_job.err" 3>&-
else
  HARNESS_JOB=${hx_job##*/}
  export HARNESS_JOB
  sh -c 'hx_cmd=$1; set --; . "$hx_cmd"' sh "$hx_job.sh" >"$hx_job.out" 2>"$hx_job.err" 3>&-
fi
hx_code=$?
{
  kill "$hx_follower"
  wait "$hx_follower"
  read -r hx_out hx_err hx_rest <"$hx_job.seen"
  rm -f "$hx_job.seen"
  hx_show
} 2>/dev/null
exit "$hx_code"
