# The shell's part of the prompt markers, for bash, zsh, dash, ash and ksh. Before it is read, these are set:
# hxdir (the jobs directory; empty in a nested shell), hxslot (the file that names the next job), hxn (nonce),
# hxk (the kind of shell), hxt (1: show the tag).
# What is typed is hx, an alias, so that the job's file is read at the top level: a declare in it is not local to a
# function. The file begins by calling hxc. In a nested shell:  hxb ID; eval '...'; { hxd; } 2>/dev/null
# Lines here are joined with newlines only, and no comment stands inside, when it is typed into a nested shell.
hxi=0 hxl=0 hxx=0 hxr=0 hxs=0 hxz= hxf= hxo= hxu= hxw=
if [ -n "${KSH_VERSION-}${ZSH_VERSION-}" ]; then hxp() { print -rn -- "$1"; }
else hxp() { command printf %s "$1"; }
fi
hxe=$(command printf '\033') hxg=$(command printf '\007') hxcr=$(command printf '\r') hxnl='
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
{ IFS=' ' read -r hxi hxo <"$hxslot" || :; : >|"$hxslot"; } 2>/dev/null
case $hxi in '' | *[!0-9]*) hxi=0; return 0 ;; esac
hxf=$hxdir/$hxi.${hxo:-cmd}
{ hxh; hxy >/dev/tty; } 2>/dev/null
hxm "C;$hxn;$hxi"
}
hxc() {
hxm "C;$hxn;$hxi"
case $- in *e*) return 0 ;; esac
return $hxr
}
hxd() {
hxx=$?
[ "$hxi" = 0 ] || hxend
case $- in *e*) return 0 ;; esac
return $hxx
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
IFS= read -r hxo <"$hxdir/$hxi.cmd" || :
hxo=${hxo#*'#| '}
hxp "${hxo%' #%%'}$hxnl"
}
hxyp() { hxp '$ '; }
hx() { hxa; . "$hxf"; { hxd; } 2>/dev/null; }
hxh() { :; }
case $hxk${BASH_VERSION-} in *[0-9]* | ash*) hxL='\[' hxR='\]' ;; *) hxL= hxR= ;; esac
[ -z "${KSH_VERSION-}" ] || hxL=$(command printf '\001') hxR=$(command printf '\001')
if [ -n "$hxt" ]; then hxT='[harness $((hxl=hxi?hxi:hxl)): $((hxx=hxi?$?:hxx))] '
else hxT='${hxz#$((hxl=hxi?hxi:hxl))}${hxz#$((hxx=hxi?$?:hxx))}'
fi
hxP="$hxL"'${hxa}$?${hxb}${hxi}${hxg}'"$hxR$hxT$hxL"'${hxz#$((hxi=0))}${hxj}${hxl}${hxg}'"$hxR"
alias hx='hxa; . "$hxf"; { hxd; } 2>/dev/null'
if [ -n "${ZSH_VERSION-}" ]; then eval '
setopt interactivecomments nobanghist
hxh() { (( ${precmd_functions[(I)hxzp]} )) || precmd_functions+=(hxzp); (( ${preexec_functions[(I)hxze]} )) || preexec_functions+=(hxze); }
hxze() { [[ $1 == " hx"* ]] || hxm "C;$hxn;0"; }
hxzp() {
hxs=$?
if [[ $hxi != 0 ]]; then hxx=$hxs; hxend; else hxm "D;$hxs;$hxn;0"; fi
[[ ${PROMPT-} == "$hxw" ]] || hxu=${PROMPT-}
hxw="%{$hxj$hxl$hxg%}${hxt:+[harness $hxl: $hxx] }$hxu"
PROMPT=$hxw
return $hxs
}
hxyp() { print -Pn -- "${hxu##*$hxnl}"; }
zshaddhistory_functions+=(hxza)
hxza() { [[ $1 != " hx"* ]]; }
alias hx="hxa; { . \"\$hxf\" } always { { hxd } 2>/dev/null }"
PROMPT2="%{$hxv%}${PROMPT2-}"
hxh
'
elif [ -n "${BASH_VERSION-}" ]; then eval '
hxh() {
case ${PS1-} in "$hxP"*) ;; *) hxu=${PS1-}; PS1=$hxP$hxu ;; esac
case "${PS0-}" in "$hxq"*) ;; *) PS0=$hxq${PS0-} ;; esac
case ${PS2-} in "\[$hxv"*) ;; *) PS2="\[$hxv\]${PS2-}" ;; esac
case "${PROMPT_COMMAND[*]-}" in *hxpc*) ;; *) hxhc ;; esac
case ":${HISTIGNORE-}:" in *": hx*:"*) ;; *) HISTIGNORE="${HISTIGNORE:+$HISTIGNORE:} hx*" ;; esac
}
hxhc() { PROMPT_COMMAND="{ hxps; } 2>/dev/null$hxnl${PROMPT_COMMAND-}$hxnl{ hxpc; } 2>/dev/null"; }
hxps() { hxs=$?; if [ "$hxi" != 0 ]; then hxx=$hxs; hxend; fi; return $hxs; }
hxpc() {
hxh
return $hxs
}
export -n PS1 PS0 PS2
'
case $BASH_VERSION in [1-3].* | 4.[0-3]*) ;; *) eval 'hxyp() { hxo=${hxu@P}; hxo=${hxo##*"$hxnl"}; hxp "${hxo//[$'"'"'\001\002'"'"']/}"; }' ;; esac
case $BASH_VERSION in [1-4].* | 5.0*) ;; *) eval 'hxhc() { PROMPT_COMMAND=("{ hxps; } 2>/dev/null" ${PROMPT_COMMAND[@]+"${PROMPT_COMMAND[@]}"} "{ hxpc; } 2>/dev/null"); }' ;; esac
hxh
else
hxh() {
case ${PS1-} in *"$hxP"*) ;; *) hxu=${PS1-}; PS1=${KSH_VERSION:+$hxL$hxcr}$hxP$hxu ;; esac
case ${PS2-} in "$hxv"*) ;; *) PS2=$hxv${PS2-} ;; esac
}
hxh
fi
