# The shell's part of the prompt markers, for bash, zsh, dash, ash and ksh. Before it is read, these are set:
# hxdir (the jobs directory; empty in a nested shell), hxslot (the file that names the next job), hxn (nonce),
# hxk (the kind of shell), hxt (1: show the tag).
# What is typed is hx, an alias, so that the job's file is read at the top level: a declare in it is not local to a
# function. The file begins by calling hxc. In a nested shell:  hxb ID; eval '...'; { hxd; } 2>/dev/null
# A status that is only handed on stands in a list with &&: so no ERR trap and no errexit takes it for a failure. What
# follows the start mark, or precedes the end mark, is not traced; ksh traces to a descriptor of its own, but not into
# functions when it is told so: there one line, "+ hxd", is left. A backslash keeps the user's aliases out.
# hxsp, as many blanks as the pane is wide but one, begins a new line for the prompt unless the cursor is at the beginning
# of one: what a command wrote last stays on the screen. zsh and fish do so themselves.
# After a syntax error in $( bash 5.2 writes before the start of a buffer, until it meets another error: eval ")".
# zsh gives 126 for a file that it aborts by itself, where its prompt gives 1: hxone sees what one eval can run as a
# prompt does. Not several lines: as a file they are read one by one, and an alias holds in the next. Nor with a trace,
# which would show the text.
# Who asked for a job before its record was there made ID.void and was told that it will not run: hxoff sees to that.
# Lines here are joined with newlines only, and no comment stands inside, when it is typed into a nested shell.
hxi=0 hxl=0 hxx=0 hxr=0 hxs=0 hxz= hxf= hxo= hxu= hxw= hxW= hxsp=
if [ -n "${KSH_VERSION-}${ZSH_VERSION-}" ]; then hxp() { \print -rn -- "$1"; }
else hxp() { \command printf %s "$1"; }
fi
hxe=$(\command printf '\033') hxg=$(\command printf '\007') hxcr=$(\command printf '\r') hxnl='
'
hxa="$hxe]133;D;" hxb=";$hxn;" hxj="$hxe]133;A;$hxn;" hxv="$hxe]133;P;$hxn$hxg" hxq="$hxe]133;C;$hxn;0$hxg"
hxm() { { hxp "$hxe]133;$1$hxg" >/dev/tty; } 2>/dev/null || hxp "$hxe]133;$1$hxg"; }
hxb() {
hxr=$? hxi=$1 hxf=/dev/null
hxh 2>/dev/null
hxm "C;$hxn;$hxi"
}
hxa() {
hxr=$? hxi=0 hxf=/dev/null hxo=
{ IFS=' ' \read -r hxi hxo <"$hxslot" || :; hxp "- $hxi$hxnl" >|"$hxslot"; } 2>/dev/null
case $hxi in '' | *[!0-9]*) hxi=0; return 0 ;; esac
[ ! -e "$hxdir/$hxi.void" ] || { hxoff; return 0; }
hxf=$hxdir/$hxi.${hxo:-cmd}
[ -s "$hxdir/$hxi.cmd" ] || hxf="$hxdir/$hxi.cmd was not written, is the disk full?"
{ hxh; hxy >/dev/tty; } 2>/dev/null
hxm "C;$hxn;$hxi"
}
hxoff() {
{ hxp "" >|"$hxdir/$hxi.cmd"; } 2>/dev/null
hxm "W;$hxn;off=$hxi"
hxi=0 hxf=/dev/null
}
hxc() {
hxm "C;$hxn;$hxi"
{ return "$hxr"; } 2>/dev/null
}
hxd() {
hxx=$?
[ "$hxi" = 0 ] || hxend
return "$hxx"
}
hxend() {
[ -z "$hxdir" ] || hxp "$hxx$hxnl" >|"$hxdir/$hxi.exit"
case $PWD in *[[:cntrl:]]*) ;; *) hxm "W;$hxn;$PWD" ;; esac
hxm "D;$hxx;$hxn;$hxi"
hxl=$hxi hxi=0
}
hxy() {
hxp "${hxe}[A$hxcr${hxe}[2K"
[ -z "$hxt" ] || hxp "[harness $hxl: $hxx] "
hxyp
IFS= \read -r hxo <"$hxdir/$hxi.cmd" || :
hxo=${hxo#*'#| '}
hxp "${hxo%' #%%'}$hxnl"
}
hxyp() { hxp '$ '; }
hx() { { hxa; } 2>/dev/null; \. "$hxf"; { hxd && :; } 2>/dev/null; }
hxh() { :; }
hxal() {
\alias hx='{ hxa; } 2>/dev/null; \. "$hxf"; { hxd && :; } 2>/dev/null' hxc='{ hxc && :; } 2>/dev/null'
}
case $hxk${BASH_VERSION-} in *[0-9]* | ash*) hxL='\[' hxR='\]' ;; *) hxL= hxR= ;; esac
[ -z "${KSH_VERSION-}" ] || hxL=$(\command printf '\001') hxR=$(\command printf '\001')
if [ -n "$hxt" ]; then hxT='[harness $((hxl=hxi?hxi:hxl)): $((hxx=hxi?$?:hxx))] '
else hxT='${hxz#$((hxl=hxi?hxi:hxl))}${hxz#$((hxx=hxi?$?:hxx))}'
fi
[ -z "${hxcols-}" ] || hxsp=$(\command printf "%$((hxcols - 1))s$hxcr${hxe}[K" '')
hxP="$hxL"'${hxa}$?${hxb}${hxi}${hxg}${hxsp}'"$hxR$hxT$hxL"'${hxz#$((hxi=0))}${hxj}${hxl}${hxg}'"$hxR"
if [ -n "${ZSH_VERSION-}" ]; then \eval '
setopt interactivecomments nobanghist
PROMPT_EOL_MARK=
hxone() {
local file=$hxf
[[ -r $file && ! -o xtrace ]] || return 1
[[ $file == *.run ]] || { file=$(<$file); [[ ${file#*$hxnl} != *$hxnl* ]]; }
}
hxal() { \alias hx="{ hxa } 2>/dev/null; { if { hxone } 2>/dev/null; then \\eval \"\$(<\$hxf)\"; else \\. \"\$hxf\"; fi } always { { hxd && : } 2>/dev/null }" hxc="{ hxc && :; } 2>/dev/null"; }
hxh() {
[[ ${(j: :)precmd_functions[@]-} == *hxzp* ]] || precmd_functions+=(hxzp)
[[ ${(j: :)preexec_functions[@]-} == *hxze* ]] || preexec_functions+=(hxze)
}
hxze() { setopt localoptions noxtrace; [[ $1 == " hx"* ]] || hxm "C;$hxn;0"; }
hxzp() {
hxs=$?
setopt localoptions noxtrace
if [[ $hxi != 0 ]]; then hxx=$hxs; hxend; else hxm "D;$hxs;$hxn;0"; fi
[[ ${PROMPT-} == "$hxw" ]] || hxu=${PROMPT-}
hxw="%{$hxj$hxl$hxg%}${hxt:+[harness $hxl: $hxx] }$hxu"
PROMPT=$hxw
typeset -g +x hxw PROMPT PROMPT2 PS1 PS2
hxal
}
hxyp() { \print -Pn -- "${hxu##*$hxnl}"; }
zshaddhistory_functions+=(hxza)
hxza() { setopt localoptions noerrexit noerrreturn; [[ $1 != " hx"* ]]; }
PROMPT2="%{$hxv%}${PROMPT2-}"
hxh
'
elif [ -n "${BASH_VERSION-}" ]; then \eval '
for hxo in PS0 PS1 PS2 PROMPT_COMMAND HISTIGNORE; do (\eval "$hxo=") 2>/dev/null && hxW="$hxW $hxo"; done
hxh() {
hxal
[[ $hxW != *PS1* || ${PS1-} == "$hxP"* ]] || { hxu=${PS1-}; PS1=$hxP$hxu; }
[[ $hxW != *PS0* || ${PS0-} == "\${hxq}"* ]] || PS0="\${hxq}${PS0-}"
[[ $hxW != *PS2* || ${PS2-} == "\[\${hxv}"* ]] || PS2="\[\${hxv}\]${PS2-}"
[[ $hxW != *PROMPT* || ${PROMPT_COMMAND[*]-} == *hxps* ]] || hxhc
[[ $hxW != *HIST* || ":${HISTIGNORE-}:" == *": hx*:"* ]] || HISTIGNORE="${HISTIGNORE:+$HISTIGNORE:} hx*"
export -n PS0 PS1 PS2
}
hxhc() { PROMPT_COMMAND="{ hxps && :; } 2>/dev/null$hxnl${PROMPT_COMMAND-}$hxnl{ hxh; } 2>/dev/null"; }
hxps() { hxs=$?; [[ $hxi == 0 ]] || { hxx=$hxs; hxend; }; [[ $hxs != 2 ]] || \eval ")" || :; return "$hxs"; }
'
case $BASH_VERSION in [1-3].* | 4.[0-3]*) ;; *) \eval 'hxyp() { hxo=${hxu@P}; hxo=${hxo##*"$hxnl"}; hxp "${hxo//[$'"'"'\001\002'"'"']/}"; }' ;; esac
case $BASH_VERSION in [1-4].* | 5.0*) ;; *) \eval 'hxhc() { PROMPT_COMMAND=("{ hxps && :; } 2>/dev/null" ${PROMPT_COMMAND[@]+"${PROMPT_COMMAND[@]}"} "{ hxh; } 2>/dev/null"); }' ;; esac
hxh
else
hxV='${hxv}'
if [ -n "${KSH_VERSION-}" ]; then
hxV=$hxv
{ set +o inherit-xtrace; } 2>/dev/null || :
hxc() {
[ "$hxr" = 0 ] || hxcm
return "$hxr"
}
hxcm() { hxm "C;$hxn;$hxi"; }
hxal() { \alias hx='hxa; \. "$hxf"; hxd && :' hxc='hxc && hxcm'; }
fi
hxh() {
\alias hx >/dev/null 2>&1 || hxal
case ${PS1-} in *"$hxP"*) ;; *) hxu=${PS1-}; PS1=${KSH_VERSION:+$hxL$hxcr}$hxP$hxu ;; esac
case ${PS2-} in "$hxV"*) ;; *) PS2=$hxV${PS2-} ;; esac
}
hxh
fi
hxal
hxm "W;$hxn;pid=$$"
