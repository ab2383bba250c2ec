# How the pane's own shell reads the files of a job, after hooks.sh. hxread names a file that sets hxo to "read".
# What is typed is hx, an alias, so that the job's file is read at the top level: a declare in it is not local to a
# function. The slot holds "ID SUFFIX SECRET", and is crossed out by who reads a job there: a line that finds none leaves
# it to the next job, which may be written at that moment. The secret proves the end, so it is in this shell's memory
# alone, and never exported, also with allexport. A mark that says that nothing ran carries it too.
# That . and eval read files is tried before each command. ID.sh is read; under a trace ID.cmd, whose first line calls
# hxc: what leads to it lies between two start marks. So it does in a wrapper (ID.run), which calls hxg or reads ID.cmd.
# bash: a file that is read by . hides the DEBUG trap, and its end is seen by ERR and RETURN. So while one of these traps
# is set they are put aside, and eval runs the text, which sets them again at its beginning. A wrapper is read as a file,
# and they are set again after it.
# In zsh and bash what traps write of hxa and hxd goes nowhere.
# zsh gives 126 for a file that it aborts by itself, where its prompt gives 1: hxone sees what one eval can run as a
# prompt does. Not several lines: as a file they are read one by one, and an alias holds in the next. Nor with a trace,
# which would show the text.
# A terminal that is gone makes commands fail: how the one that ran in it ended is not known then. hxD: /dev/tty is here,
# which cannot be opened after the death of the pane's first process, when the descriptors are terminals still.
# Who asked for a job before its record was there made ID.void and was told that it will not run: hxnot sees to that.
hxis() { [ -e "$1" ]; }
hxD=
{ hxp "" >/dev/tty && hxD=1; } 2>/dev/null
hxtty() { case $hxD in 1) hxp "" >/dev/tty ;; *) [ -t 0 ] || [ -t 1 ] || [ -t 2 ] ;; esac; }
hxhas() { [ -s "$1" ]; }
hxwrite() { hxp "$1" >|"$2"; }
hxget() { IFS=' ' \command read -r hxi hxo hxS <"$hxslot"; }
hxline() { IFS= \command read -r hxo <"$1"; }
hxset() { \set "$1"; }
hxeval() { \eval "$hxev"; }
hxa() {
hxi=0 hxB=n hxf=/dev/null hxo= hxev='\. "$hxf"'
hxsave
{ case $- in *a*) hxset +a; hxget; hxset -a ;; *) hxget ;; esac; } 2>/dev/null
case $hxi in
'' | 0 | *[!0-9]*) hxi=0 ;;
*)
{ hxwrite "- $hxi$hxnl" "$hxslot"; } 2>/dev/null
hxab
;;
esac
hxlet "$hxr"
}
hxsave() { :; }
hxab() {
case $hxX in *x*) hxX=x ;; *) hxX= ;; esac
if hxis "$hxdir/$hxi.void"; then hxnot off
elif hxhas "$hxdir/$hxi.sh"; then hxgo "$hxo"
else hxnot full
fi
}
hxgo() {
hxf=$hxdir/$hxi.$1 hxF=$hxdir/$hxi.sh
case $hxX in x) hxF=$hxdir/$hxi.cmd ;; esac
case $1 in sh) hxf=$hxF ;; *) hxX=x ;; esac
hxo=
{ hxtry "$1"; } 2>/dev/null
case $hxo in
read)
{ hxh; hxy "C;$hxn;$hxi${hxX:+;x}" >/dev/tty; } 2>/dev/null || hxm "C;$hxn;$hxi${hxX:+;x}"
hxB=b
;;
*)
{ hxwrite "128 unknown$hxnl" "$hxdir/$hxi.exit"; } 2>/dev/null
hxnot unread
;;
esac
}
hxtry() { \eval '\. "$hxread"'; }
hxnot() {
case $1 in unread) ;; *) { hxwrite "" "$hxdir/$hxi.cmd"; } 2>/dev/null ;; esac
hxm "W;$hxn;$1=$hxi;$hxS"
hxi=0 hxf=/dev/null hxev='\. "$hxf"'
}
hxg() {
case $hxF in *.cmd) ;; *) hxcm ;; esac
hxlet "$hxr"
}
hxrec() {
if hxhas "$hxdir/$hxi.exit"; then
hxwrite "$hxx unknown$hxnl" "$hxdir/$hxi.exit"
hxm "W;$hxn;twice=$hxi;$hxS"
elif { hxtty; } 2>/dev/null; then
hxwrite "$hxx completed $hxS $1$hxnl" "$hxdir/$hxi.exit"
else
hxwrite "128 unknown$hxnl" "$hxdir/$hxi.exit"
fi
}
hxy() {
hxyp
hxyl "${hxe}[A$hxcr${hxe}[2K${hxt:+[harness $hxl: $hxx] }$hxo" "$1"
}
hxyl() {
hxline "$hxdir/$hxi.cmd" || :
hxo=${hxo#*'#| '}
hxp "$1${hxo%' #%%'}$hxnl$hxe]133;$2$hxg"
}
hxyp() { hxo='$ '; }
hx() { { hxr=$? hxX=$-; hxa && :; } 2>/dev/null; hxeval; { hxd && :; } 2>/dev/null; }
hxal() {
\command alias hx='{ hxr=$? hxX=$-; hxa && :; } 2>/dev/null; \. "$hxf"; { hxd && :; } 2>/dev/null' hxc='{ hxc && :; } 2>/dev/null'
}
case ${BASH_VERSION:+bash}${ZSH_VERSION:+zsh} in
?*) \eval '
hxis() { [[ -e $1 ]]; }
hxtty() { case $hxD in 1) hxp "" >/dev/tty ;; *) [[ -t 0 || -t 1 || -t 2 ]] ;; esac; }
hxhas() { [[ -s $1 ]]; }
hxget() { IFS=" " \builtin read -r hxi hxo hxS <"$hxslot"; }
hxline() { IFS= \builtin read -r hxo <"$1"; }
hxset() { \builtin set "$1"; }
hxeval() { \builtin eval "$hxev"; }
' ;;
esac
case ${BASH_VERSION:+bash}${ZSH_VERSION:+zsh}${KSH_VERSION:+ksh} in
zsh) \eval '
hxline() { hxo=$(<"$1") && hxo=${hxo%%$hxnl*}; }
hxone() {
[[ -r $hxf && ! -o xtrace ]] || \builtin return 1
hxev=$(<"$hxf")
[[ $hxf == *.run || $hxev != *$hxnl* ]]
}
hxtry() {
\builtin eval "\\builtin . \"\$hxread\""
hxone || hxev="\\builtin . \"\$hxf\""
}
hxyp() { hxo=${(%%)${hxu##*$hxnl}}; }
hxal() { \builtin alias hx="{ hxr=\$? hxX=\$-; hxa && :; } >/dev/null 2>&1; { \\builtin eval \"\$hxev\" } always { { hxd && : } >/dev/null 2>&1 }" hxc="{ hxc && :; } 2>/dev/null"; }
' ;;
bash)
\eval '
hxtf=${hxslot%next}traps
hxal() {
\builtin alias hx="{ hxr=\$? hxX=\$-; \\builtin trap -p DEBUG ERR RETURN >|\"\$hxtf\" && \\builtin trap - DEBUG ERR RETURN; hxa && :; } >/dev/null 2>&1; \\builtin eval \"\$hxev\"; { hxd && :; } >/dev/null 2>&1" hxc="{ hxc && :; } 2>/dev/null"
}
hxsave() {
hxev="\\builtin . \"\$hxf\"" hxtr=
[[ ! -s $hxtf ]] || IFS= \builtin read -r -d "" hxtr <"$hxtf"
}
hxtry() {
\builtin eval "\\builtin . \"\$hxread\""
hxei="\\builtin . \"\$hxF\""
[[ $hxo == read ]] || { hxF=$hxdir/$hxi.sh; IFS= \builtin read -r -d "" hxei <"$hxF"; }
[[ $hxo == read && ( $1 != sh || -z $hxtr ) ]] || { hxo=; hxtext "$1"; }
}
hxtext() {
IFS= \builtin read -r -d "" hxev <"$hxdir/$hxi.$1"
hxev="{ hxc && :; } >/dev/null 2>&1$hxnl$hxev"
[[ $1 != sh ]] || hxev="$hxtr$hxnl$hxev"
hxX=x
\builtin eval hxo=read
}
hxd() {
hxx=$?
[[ $hxi == 0 ]] || hxend ""
[[ -z $hxtr ]] || { \builtin eval "$hxtr"; hxtr=; }
\builtin return "$hxx"
}
'
case $BASH_VERSION in [1-3].* | 4.[0-3]*) ;; *) \eval 'hxyp() { hxo=${hxu@P}; hxo=${hxo##*"$hxnl"}; hxo="${hxo//[$'"'"'\001\002'"'"']/}"; }' ;; esac
;;
ksh) hxal() { \command alias hx='hxr=$? hxX=$-; hxa && :; \. "$hxf"; hxd && :' hxc='hxc && hxcm'; } ;;
esac
hxal
hxo= hxkeeper=
{ hxline "${hxslot%next}keeper"; hxkeeper=$hxo; } 2>/dev/null
case ${hxkeeper:+${BASH_VERSION-}${ZSH_VERSION-}k} in
k) hxfree() { \command kill -URG "$hxkeeper"; } ;;
*k) hxfree() { \builtin kill -URG "$hxkeeper"; } ;;
esac
