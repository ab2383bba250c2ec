# Runs in a pane, for as long as the pane lives: start a shell, say when it ended, start the next one.
# Arguments: the pane's directory, the shell, the directory of these files, the directory to start in (may be empty).
set -m
hx_dir=$1 hx_shell=$2 hx_hooks=$3 hx_failed=0
read -r hx_nonce <"$hx_dir/nonce"
printf '\033]133;W;%s;tty=%s:%s\007' "$hx_nonce" "$$" "$(tty)"
case $4 in
  '') ;;
  '~' | '~/'*) cd -- "$HOME${4#?}" || : ;;
  *) cd -- "$4" || : ;;
esac
# When the terminal goes, only this process and the foreground group are told. The shell is neither while a program of
# its own runs, and would go on without a terminal: somebody waits for our end and tells it.
rm -f "$hx_dir/alive"
if mkfifo "$hx_dir/alive" 2>/dev/null; then
  (
    read -r hx_end <"$hx_dir/alive"
    read -r hx_pid <"$hx_dir/pid" && kill -HUP "$hx_pid"
    rm -f "$hx_dir/alive"
  ) </dev/null >/dev/null 2>&1 &
  exec 8>"$hx_dir/alive"
else
  exec 8>/dev/null
fi
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
  hx_mark= hx_job=
  { read -r hx_mark hx_job <"$hx_dir/next"; } 2>/dev/null
  case $hx_mark$hx_job in
    -*[!0-9]* | - | '') ;;
    -*) [ -s "$hx_dir/../../jobs/$hx_job.exit" ] || echo "$hx_code shell_exited" >"$hx_dir/../../jobs/$hx_job.exit" ;;
  esac
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
