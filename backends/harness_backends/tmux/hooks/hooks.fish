# The shell's part of the prompt markers, for fish. Set before: hxdir, hxn, hxt (see hooks.sh).
set -g hxi 0
set -g hxl 0
set -g hxx 0
set -g hxr 0
function hxm
builtin printf '\e]133;%s\a' $argv[1] >/dev/tty 2>/dev/null
or builtin printf '\e]133;%s\a' $argv[1]
end
function hxst
return $argv[1]
end
function hxb
set -g hxr $status
set -g hxi $argv[1]
set -g hxf ''
hxm "C;$hxn;$hxi"
end
function hxa
set -g hxr $status
set -g hxf ''
set -l slot
builtin read -d ' ' -a slot <$hxslot
builtin echo "- $slot[1]" >$hxslot
set -g hxi 0
builtin string match -qr '^[0-9]+$' -- "$slot[1]"
or return 0
set -g hxi $slot[1]
if builtin test -e $hxdir/$hxi.void
hxoff
return 0
end
set -q slot[2]
or set slot[2] cmd
builtin read -gz hxf <$hxdir/$hxi.$slot[2]
hxy >/dev/tty 2>/dev/null
hxm "C;$hxn;$hxi"
end
function hxoff
builtin printf '' >$hxdir/$hxi.cmd
hxm "W;$hxn;off=$hxi"
set -g hxi 0
end
function hxc
hxm "C;$hxn;$hxi"
return $hxr
end
function hxd
set -g hxx $status
builtin test $hxi != 0
and hxend
return $hxx
end
function hxend
builtin test -n "$hxdir"
and builtin echo $hxx >$hxdir/$hxi.exit
builtin string match -qr '[[:cntrl:]]' -- $PWD
or hxm "W;$hxn;$PWD"
hxm "D;$hxx;$hxn;$hxi"
set -g hxl $hxi
set -g hxi 0
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
builtin test $hxi != 0
and hxm "O;$hxn;$hxi"
end
functions -q fish_prompt
and functions -c fish_prompt hxuserprompt
or function hxuserprompt
builtin printf '> '
end
function fish_prompt
set -l s $status
if test $hxi != 0
set -g hxx $s
hxend
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
