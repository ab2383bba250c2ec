# The shell's part of the prompt markers, for fish. Set before: hxdir, hxn, hxt (see hooks.sh).
# set -lx fish_trace: a trace would show the secret of a command's end, in the log too, before the command runs.
# hxkeys binds a key that no keyboard has, which empties the editor: its own keys empty one line of several.
# builtin names a word that no function can have; so do set, test, string, read, eval, return and if.
set -g hxi 0
set -g hxl 0
set -g hxx 0
set -g hxr 0
set -g hxS ''
set -g hxB ''
function hxm
set -lx fish_trace
builtin printf '\e]133;%s\a' $argv[1] >/dev/tty 2>/dev/null
or builtin printf '\e]133;%s\a' $argv[1]
end
function hxst
return $argv[1]
end
function hxb
set -g hxr $status
set -lx fish_trace
set -g hxB n
set -g hxi $argv[1]
set -g hxf ''
hxm "C;$hxn;$hxi;x"
set -g hxB b
end
function hxa
set -g hxr $status
set -lx fish_trace
set -g hxf ''
set -l slot
builtin read -d ' ' -a slot <$hxslot
set -g hxi 0
set -g hxB n
builtin string match -qr '^[0-9]+$' -- "$slot[1]"
or return 0
set -g hxi $slot[1]
builtin echo "- $hxi" >$hxslot
set -g hxS $slot[3]
if builtin test -e $hxdir/$hxi.void
hxnot off
return 0
end
if builtin test ! -s $hxdir/$hxi.sh
hxnot full
return 0
end
builtin read -gz hxf <$hxdir/$hxi.$slot[2]
hxy >/dev/tty 2>/dev/null
set -l soon
builtin test $slot[2] = run
and set soon ';x'
hxm "C;$hxn;$hxi$soon"
set -g hxB b
return $hxr
end
function hxnot
builtin printf '' >$hxdir/$hxi.cmd
hxm "W;$hxn;$argv[1]=$hxi;$hxS"
set -g hxi 0
end
function hxc
hxm "C;$hxn;$hxi"
return $hxr
end
function hxd
set -g hxx $status
set -lx fish_trace
builtin test $hxi != 0
and hxend ''
return $hxx
end
set -g hxD 0
builtin printf '' >/dev/tty 2>/dev/null
and set -g hxD 1
function hxtty
if builtin test $hxD = 1
builtin printf '' >/dev/tty 2>/dev/null
else
builtin test -t 0; or builtin test -t 1; or builtin test -t 2
end
end
function hxend
set -lx fish_trace
if builtin test -z "$hxdir"
else if builtin test -s $hxdir/$hxi.exit
builtin echo $hxx unknown >$hxdir/$hxi.exit
hxm "W;$hxn;twice=$hxi;$hxS"
else if hxtty
builtin echo $hxx completed $hxS (builtin string trim -c ';' -- $argv[1]) >$hxdir/$hxi.exit
else
builtin echo 128 unknown >$hxdir/$hxi.exit
end
set -l place $PWD
builtin string match -qr '[[:cntrl:]]' -- $PWD
and set place ''
hxm "W;$hxn;$place"
hxm "D;$hxx;$hxn;$hxi;$hxS$argv[1]"
set -g hxl $hxi
set -g hxi 0
builtin test -n "$hxkeeper"
and command kill -URG $hxkeeper 2>/dev/null
end
function hxy
builtin printf '\e[A\r\e[2K'
builtin test -n "$hxt"
and builtin printf '[harness %s: %s] ' $hxl $hxx
hxst $hxr
set -l prompt (hxuserprompt)
builtin printf '%s' $prompt[-1]
builtin read -l line <$hxdir/$hxi.cmd
builtin string replace -r '^.*?#\| (.*) #%%$' '$1' -- $line
end
function hxpre --on-event fish_preexec
builtin string match -q ' hx*' -- $argv[1]
or hxm "C;$hxn;0"
end
function hxpost --on-event fish_postexec
set -lx fish_trace
builtin test $hxi != 0
and hxm "O;$hxn;$hxi;$hxS"
end
builtin functions -q fish_prompt
and builtin functions -c fish_prompt hxuserprompt
or function hxuserprompt
builtin printf '> '
end
function hxkeys
set -lx fish_trace
for mode in default insert visual replace replace_one
builtin bind -M $mode \e\[7733~ 'builtin commandline -r ""' 2>/dev/null
end
end
hxkeys
function fish_prompt
set -l s $status
hxkeys
if builtin test $hxi != 0
set -g hxx $s
hxend ";$hxB"
else
hxm "D;$s;$hxn;0"
end
builtin printf '\e]133;A;%s;%s\a' $hxn $hxl
builtin test -n "$hxt"
and builtin printf '[harness %s: %s] ' $hxl $hxx
hxst $s
hxuserprompt
end
hxm "W;$hxn;pid=$fish_pid"
