# The shell's part of the prompt markers, for fish. Set before: hxdir, hxn, hxt (see hooks.sh).
set -g hxi 0
set -g hxl 0
set -g hxx 0
set -g hxr 0
function hxm
printf '\e]133;%s\a' $argv[1] >/dev/tty 2>/dev/null
or printf '\e]133;%s\a' $argv[1]
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
read -d ' ' -a slot <$hxslot
echo "- $slot[1]" >$hxslot
set -g hxi 0
string match -qr '^[0-9]+$' -- "$slot[1]"
or return 0
set -g hxi $slot[1]
set -q slot[2]
or set slot[2] cmd
read -gz hxf <$hxdir/$hxi.$slot[2]
hxy >/dev/tty 2>/dev/null
hxm "C;$hxn;$hxi"
end
function hxc
hxm "C;$hxn;$hxi"
return $hxr
end
function hxd
set -g hxx $status
test $hxi != 0
and hxend
return $hxx
end
function hxend
test -n "$hxdir"
and echo $hxx >$hxdir/$hxi.exit
string match -qr '[[:cntrl:]]' -- $PWD
or hxm "W;$hxn;$PWD"
hxm "D;$hxx;$hxn;$hxi"
set -g hxl $hxi
set -g hxi 0
end
function hxy
printf '\e[A\r\e[2K'
test -n "$hxt"
and printf '[harness %s: %s] ' $hxl $hxx
hxst $hxr
set -l prompt (hxuserprompt)
printf '%s' $prompt[-1]
read -l line <$hxdir/$hxi.cmd
string replace -r '^.*?#\| (.*) #%%$' '$1' -- $line
end
function hxpre --on-event fish_preexec
string match -q ' hx*' -- $argv[1]
or hxm "C;$hxn;0"
end
functions -q fish_prompt
and functions -c fish_prompt hxuserprompt
or function hxuserprompt
printf '> '
end
function fish_prompt
set -l s $status
if test $hxi != 0
set -g hxx $s
hxend
else
hxm "D;$s;$hxn;0"
end
printf '\e]133;A;%s;%s\a' $hxn $hxl
test -n "$hxt"
and printf '[harness %s: %s] ' $hxl $hxx
hxst $s
hxuserprompt
end
hxm "W;$hxn;pid=$fish_pid"
