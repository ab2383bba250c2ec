# Runs in a pane, for as long as the pane lives: start a shell, say when it ended, start the next one.
# Arguments: the pane's directory, the shell, the directory of these files, the directory to start in (may be empty).
\unset -f command cd echo kill mkfifo printf read rm sleep stty tty 2>/dev/null # functions that bash exports
set -m
hx_dir=$1 hx_shell=$2 hx_hooks=$3 hx_failed=0 hx_keeper=
read -r hx_nonce <"$hx_dir/nonce"
case $4 in
  '') ;;
  '~' | '~/'*) cd -- "$HOME${4#?}" || : ;;
  *) cd -- "$4" || : ;;
esac
# $1: what N.exit is to hold for the job that the shell has taken last, if nothing is there.
hx_record() {
  hx_mark= hx_job=
  { read -r hx_mark hx_job <"$hx_dir/next"; } 2>/dev/null
  case $hx_mark$hx_job in
    -*[!0-9]* | - | '') ;;
    -*) [ -s "$hx_dir/../../jobs/$hx_job.exit" ] || echo "$1" >"$hx_dir/../../jobs/$hx_job.exit" ;;
  esac
}
# A person may have started the pane anew (respawn-pane -k): the shell before this one, and the job in it, are ended by
# the keeper of our predecessor; see below. Nobody saw an exit code.
hx_count=0
while [ -p "$hx_dir/alive" ] && [ "$hx_count" -lt 50 ]; do
  hx_count=$((hx_count + 1))
  sleep 0.02 2>/dev/null || sleep 1
done
hx_record '128 unknown'
printf '\033]133;W;%s;tty=%s:%s\007' "$hx_nonce" "$$" "$(tty)"
# A second process, the keeper, lives as long as this one. The shell sends it URG, which does nothing to any other
# process, when a job has ended: it gives the keyboard back and clears the status line, whether harness lives or not. It
# does so at once, and then once a second at most, however many jobs end.
# When the terminal goes, only this process and the foreground group are told. The shell is neither while a program of
# its own runs, and would go on without a terminal: the keeper notices our end and tells it.
hx_free() {
  hx_mark= hx_job=
  { read -r hx_mark hx_job hx_rest <"$hx_dir/next"; } 2>/dev/null
  case $hx_mark$hx_job in -*[!0-9]* | - | '' | [!-]*) return ;; esac
  [ -s "$hx_dir/../../jobs/$hx_job.exit" ] && [ -n "${TMUX_PANE-}" ] && [ -r "$hx_dir/free" ] && . "$hx_dir/free"
}
# Our end closes the pipe a moment before it is complete; and who does not reap us leaves a zombie.
hx_lives() {
  hx_stat=
  { read -r hx_stat <"/proc/$$/stat"; } 2>/dev/null
  case ${hx_stat##*) } in Z*) return 1 ;; esac
  kill -0 "$$" 2>/dev/null
}
hx_keep() {
  hx_told= hx_over=
  trap 'hx_told=1' URG
  trap 'hx_over=1' USR1
  { read -r hx_end <"$hx_dir/alive"; read -r hx_me <"$hx_dir/keeper" && kill -USR1 "$hx_me"; } &
  hx_reader=$!
  while [ -z "$hx_over" ]; do
    if [ -n "$hx_told" ]; then
      hx_told=
      hx_free
      sleep 1 &
      hx_nap=$! hx_code=200
      while [ -z "$hx_over" ] && [ "$hx_code" -gt 128 ]; do
        wait "$hx_nap"
        hx_code=$?
      done
      kill "$hx_nap"
    else
      wait "$hx_reader"
      [ "$?" -gt 128 ] || hx_over=1
    fi
  done
  hx_code=0
  while hx_lives && [ "$hx_code" -lt 50 ]; do
    hx_code=$((hx_code + 1))
    sleep 0.02 || sleep 1
  done
  ! hx_lives || return
  read -r hx_pid <"$hx_dir/pid" && kill -HUP "$hx_pid"
  rm -f "$hx_dir/alive"
}
rm -f "$hx_dir/alive" "$hx_dir/keeper"
if mkfifo "$hx_dir/alive" 2>/dev/null; then
  hx_keep </dev/null >/dev/null 2>&1 &
  hx_keeper=$!
  echo "$hx_keeper" >"$hx_dir/keeper"
  exec 8>"$hx_dir/alive"
else
  exec 8>/dev/null
fi
# A shell that stops itself (suspend) has not ended, and nobody else here can wake it: it goes on. One that stops again
# at each try is ended, and any where this is a pdksh, which does not wait for what it wakes.
hx_resume() {
  hx_tries=0
  while :; do
    case $hx_code in 14[5-9] | 150) ;; *) return ;; esac
    hx_stopped=
    jobs -p >"$hx_dir/stopped" 2>/dev/null
    while read -r hx_pid; do [ "$hx_pid" = "$hx_keeper" ] || hx_stopped=$hx_pid; done <"$hx_dir/stopped"
    rm -f "$hx_dir/stopped"
    [ -n "$hx_stopped" ] || return
    [ -z "${KSH_VERSION-}" ] || hx_tries=19
    hx_tries=$((hx_tries + 1))
    if [ "$hx_tries" -ge 20 ]; then kill -KILL "-$hx_stopped"; return; fi
    fg >/dev/null
    hx_code=$?
  done
} 2>/dev/null
hx_free </dev/null >/dev/null 2>&1
hx_modes=$(stty -g 2>/dev/null)
while :; do
  : >"$hx_dir/starting"
  rm -f "$hx_dir/pid"
  export HX_DIR="$hx_dir" HX_HOOKS="$hx_hooks" HX_ENV="${ENV-}"
  case ${hx_shell##*/} in
    bash) "$hx_shell" --rcfile "$hx_hooks/bashrc" -i 8>&- ;;
    zsh) HX_ZDOTDIR=${ZDOTDIR-} ZDOTDIR=$hx_hooks/zsh "$hx_shell" -i -l 8>&- ;;
    fish) "$hx_shell" -i -l -C "source \$HX_HOOKS/fishrc" 8>&- ;;
    busybox) ENV=$hx_hooks/shrc "$hx_shell" ash -i 8>&- ;;
    *) ENV=$hx_hooks/shrc "$hx_shell" -i 8>&- ;;
  esac
  hx_code=$?
  hx_resume
  hx_record "$hx_code shell_exited"
  { read -r hx_keeper <"$hx_dir/keeper" && kill -URG "$hx_keeper"; } 2>/dev/null
  if [ -e "$hx_dir/starting" ]; then hx_failed=$((hx_failed + 1)); else hx_failed=0; fi
  [ -z "$hx_modes" ] || stty "$hx_modes" 2>/dev/null # a program that was killed with its shell left its own modes
  printf '\033]133;X;%s;%s\007' "$hx_code" "$hx_nonce"
  printf '\033[?1047l\033[?25h\033[?1l\033>\033[?2004l\033[?1000l\033[?1002l\033[?1003l\033[?1006l\033(B\033[m'
  printf '\r\n[harness: the shell ended (%s); a new one follows]\r\n' "$hx_code"
  if [ "$hx_failed" -ge 3 ]; then
    printf '[harness: %s ended three times before its first prompt; waiting a minute]\r\n' "$hx_shell"
    sleep 60
  elif [ "$hx_failed" -gt 0 ]; then
    sleep 1
  fi
done
