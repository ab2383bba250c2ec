# The shell's part of the prompt markers, for bash, zsh, dash, ash and ksh. Before it is read, these are set:
# hxdir (the jobs directory; empty in a nested shell), hxslot (the file that names the next job), hxn (nonce),
# hxk (the kind of shell), hxt (1: show the tag). The pane's own shell reads jobs.sh after it.
# In a nested shell this is typed:  hxb ID; eval '...'; { hxd; } 2>/dev/null
# Words that a user can redefine: dash, ash and ksh find their special builtins (. eval export return set trap unset)
# before functions; a backslash keeps aliases out of those. Others are asked for with command (bash, zsh: builtin), and
# tests are keywords, or [ in shells where no function can have that name. When command or builtin are functions
# themselves, no mark is written, and nobody takes the command for one that ran. While the pane's own shell reads this,
# aliases are not expanded, where that can be switched off. A variable that cannot be set is left as it is.
# A status that is only handed on stands in a list with &&: so no ERR trap and no errexit takes it for a failure. What
# precedes the end mark is not traced, and what traps write of hxd goes nowhere. ksh traces to a descriptor of its own,
# but not into functions when it is told so: there one line, "+ hxd", is left.
# hxsp, as many blanks as the pane is wide but one, begins a new line for the prompt unless the cursor is at the beginning
# of one: what a command wrote last stays on the screen. zsh and fish do so themselves.
# What is written in a row is one write: each one wakes tmux, its clients and the writer of the log.
# hxB: n from when a job is taken until its start mark is written, then b. A line that was broken off comes to the prompt,
# which tells the end with it; hxd tells it without.
# hxempty, bound to a key that no keyboard has, empties the editor of zsh: its own keys empty one line of several.
# After a syntax error in $( bash 5.2 writes before the start of a buffer, until it meets another error: eval ")".
# Lines here are joined with newlines only, and no comment stands inside, when it is typed into a nested shell.
hxi=0 hxl=0 hxx=0 hxr=0 hxs=0 hxB= hxz= hxf= hxF= hxo= hxu= hxw= hxW= hxsp= hxS= hxX= hxv= hxtr=
if [ -n "${BASH_VERSION-}" ]; then \eval '
hxp() { \builtin printf %s "$1" || \command printf %s "$1"; }
hxlet() { \builtin return "$1"; }
'
elif [ -n "${ZSH_VERSION-}" ]; then \eval '
hxp() { \builtin print -rn -- "$1"; }
hxlet() { \builtin return "$1"; }
'
else
if [ -n "${KSH_VERSION-}" ]; then hxp() { \print -rn -- "$1"; }
else hxp() { \command printf %s "$1"; }
fi
hxlet() { \return "$1"; }
fi
hxe=$(\command printf '\033') hxg=$(\command printf '\007') hxcr=$(\command printf '\r') hxnl='
'
hxa="$hxe]133;D;" hxb=";$hxn;" hxj="$hxe]133;A;$hxn;" hxv="$hxe]133;P;$hxn$hxg" hxq="$hxe]133;C;$hxn;0$hxg"
hxm() { { hxp "$hxe]133;$1$hxg" >/dev/tty; } 2>/dev/null || hxp "$hxe]133;$1$hxg"; }
hxb() {
hxr=$? hxi=$1 hxf=/dev/null hxX=x hxB=n
hxh 2>/dev/null
hxm "C;$hxn;$hxi;x"
hxB=b
}
hxc() {
hxcm
hxlet "$hxr"
}
hxcm() {
case $hxX in x) hxX=; hxm "C;$hxn;$hxi" ;; esac
hxtr=
}
hxd() {
hxx=$?
case $hxi in 0) ;; *) hxend '' ;; esac
hxlet "$hxx"
}
hxend() {
hxrec "$1"
hxo=$PWD
case $hxo in *[[:cntrl:]]*) hxo= ;; esac
hxm "W;$hxn;$hxo$hxg$hxe]133;D;$hxx;$hxn;$hxi;$hxS${1:+;$1}" && hxl=$hxi hxi=0
hxpr
hxfree
}
hxfree() { :; }
hxrec() { :; }
hxpr() { case ${PS1-} in *"$hxP"*) ;; *) hxm "A;$hxn;$hxl" ;; esac; }
hxh() { :; }
hxal() {
\command alias hxc='{ hxc && :; } 2>/dev/null'
}
case $hxk${BASH_VERSION-} in *[0-9]* | ash*) hxL='\[' hxR='\]' ;; *) hxL= hxR= ;; esac
[ -z "${KSH_VERSION-}" ] || hxL=$(\command printf '\001') hxR=$(\command printf '\001')
if [ -n "$hxt" ]; then hxT='[harness $((hxl=hxi?hxi:hxl)): $((hxx=hxi?$?:hxx))] '
else hxT='${hxz#$((hxl=hxi?hxi:hxl))}${hxz#$((hxx=hxi?$?:hxx))}'
fi
[ -z "${hxcols-}" ] || hxsp=$(\command printf "%$((hxcols - 1))s$hxcr${hxe}[K" '')
hxP="$hxL"'${hxa}$?${hxb}${hxi};${hxS}${hxB:+;$hxB}${hxg}${hxsp}'"$hxR$hxT$hxL"'${hxz#$((hxi=0))}${hxj}${hxl}${hxg}'"$hxR"
if [ -n "${ZSH_VERSION-}" ]; then \eval '
setopt interactivecomments nobanghist
PROMPT_EOL_MARK=
hxal() { \builtin alias hxc="{ hxc && :; } 2>/dev/null"; }
hxh() {
[[ ${(j: :)precmd_functions[@]-} == *hxzp* || ${(t)precmd_functions-} == *readonly* ]] || precmd_functions+=(hxzp)
[[ ${(j: :)preexec_functions[@]-} == *hxze* || ${(t)preexec_functions-} == *readonly* ]] || preexec_functions+=(hxze)
}
hxze() { \builtin setopt localoptions noxtrace; [[ $1 == " hx"* ]] || hxm "C;$hxn;0"; }
hxzp() {
hxs=$?
\builtin setopt localoptions noxtrace
if [[ $hxi != 0 ]]; then hxx=$hxs; hxend "$hxB"; else hxm "D;$hxs;$hxn;0"; fi
[[ ${PROMPT-} == "$hxw" ]] || hxu=${PROMPT-}
if [[ ${(t)PROMPT-} == *readonly* ]]; then hxm "A;$hxn;$hxl"; else
hxw="%{$hxj$hxl$hxg%}${hxt:+[harness $hxl: $hxx] }$hxu"
PROMPT=$hxw
\builtin typeset -g +x hxw PROMPT PROMPT2 PS1 PS2
fi
hxal
hxkeys
}
hxempty() { BUFFER=; }
hxkeys() {
\builtin zle -N hxempty
\builtin typeset hxmap
for hxmap in main emacs viins vicmd; do \builtin bindkey -M $hxmap "\\e[7733~" hxempty; done
} 2>/dev/null
hxkeys
hxpr() { :; }
[[ ${(t)zshaddhistory_functions-} == *readonly* ]] || zshaddhistory_functions+=(hxza)
hxza() { \builtin setopt localoptions noerrexit noerrreturn; [[ $1 != " hx"* ]]; }
[[ ${(t)PROMPT2-} == *readonly* ]] || PROMPT2="%{$hxv%}${PROMPT2-}"
hxh
'
elif [ -n "${BASH_VERSION-}" ]; then
case $BASH_VERSION in [1-3].* | 4.[0-3]*) \eval '
hxcan() { [[ " $hxW " != *" $1 "* ]] && { (\builtin eval "$1=") 2>/dev/null || { hxW="$hxW $1"; \builtin return 1; }; }; }
' ;; *) \eval '
hxcan() { [[ " $hxW " != *" $1 "* ]] && { \builtin eval "[[ \${$1@a} != *r* ]]" || { hxW="$hxW $1"; \builtin return 1; }; }; }
' ;; esac
\eval '
hxal() { \builtin alias hxc="{ hxc && :; } 2>/dev/null"; }
hxpr() { [[ ${PS1-} == "$hxP"* || ${PROMPT_COMMAND[*]-} == *hxps* ]] || hxm "A;$hxn;$hxl"; }
hxh() {
hxal
[[ ${PS1-} == "$hxP"* ]] || { hxcan PS1 && { hxu=${PS1-}; PS1=$hxP$hxu; }; }
[[ ${PS0-} == "\${hxq}"* ]] || { hxcan PS0 && PS0="\${hxq}${PS0-}"; }
[[ ${PS2-} == "\[\${hxv}"* ]] || { hxcan PS2 && PS2="\[\${hxv}\]${PS2-}"; }
[[ ${PROMPT_COMMAND[*]-} == *hxps* ]] || { hxcan PROMPT_COMMAND && hxhc; }
[[ ":${HISTIGNORE-}:" == *": hx*:"* ]] || { hxcan HISTIGNORE && HISTIGNORE="${HISTIGNORE:+$HISTIGNORE:} hx*"; }
\builtin export -n PS0 PS1 PS2 hxS
}
hxhc() { PROMPT_COMMAND="{ hxps && :; } >/dev/null 2>&1$hxnl${PROMPT_COMMAND-}$hxnl{ hxhp; } >/dev/null 2>&1"; }
hxhp() { hxh; [[ ${PS1-} == "$hxP"* ]] || hxm "A;$hxn;$hxl"; }
hxps() {
hxs=$?
[[ $hxi == 0 ]] || { hxx=$hxs; hxend "$hxB"; }
[[ -z $hxtr ]] || { \builtin eval "$hxtr"; hxtr=; }
[[ $hxs != 2 ]] || \builtin eval ")" || :
\builtin return "$hxs"
}
'
case $BASH_VERSION in [1-4].* | 5.0*) ;; *) \eval 'hxhc() { PROMPT_COMMAND=("{ hxps && :; } >/dev/null 2>&1" ${PROMPT_COMMAND[@]+"${PROMPT_COMMAND[@]}"} "{ hxhp; } >/dev/null 2>&1"); }' ;; esac
hxh
else
hxV='${hxv}'
if [ -n "${KSH_VERSION-}" ]; then
hxV=$hxv
{ set +o inherit-xtrace; } 2>/dev/null || :
hxc() {
[ "$hxr" = 0 ] || hxcm
\return "$hxr"
}
hxal() { \command alias hxc='hxc && hxcm'; }
fi
hxcan() { case " $hxW " in *" $1 "*) \return 1 ;; esac; (\eval "$1=") 2>/dev/null || { hxW="$hxW $1"; \return 1; }; }
hxh() {
\command alias hxc >/dev/null 2>&1 || hxal
case ${PS1-} in *"$hxP"*) ;; *) ! hxcan PS1 || { hxu=${PS1-}; PS1=${KSH_VERSION:+$hxL$hxcr}$hxP$hxu; } ;; esac
case ${PS2-} in "$hxV"*) ;; *) ! hxcan PS2 || PS2=$hxV${PS2-} ;; esac
}
hxh
hxpr
fi
hxal
hxm "W;$hxn;pid=$$"
