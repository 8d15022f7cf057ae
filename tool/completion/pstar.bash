# Completion of pstar for bash; zsh takes it with bashcompinit. Commands, options and keys are those that the program
# itself prints (--help, --help-config), so that nothing here knows them.

_pstar_commands() {
    "$1" --help 2>/dev/null | sed -n 's/^  \([a-z]*\)  *[^ ].*/\1/p'
}

_pstar_options() {
    "$1" "$2" --help 2>/dev/null | sed -n 's/^ *\(-.,\)\{0,1\} *\(--[a-z-]*\).*/\2/p'
}

# "optimizer.type="
_pstar_keys() {
    "$1" train --help-config 2>/dev/null | sed -n 's/^  \([a-z_][a-z_0-9.]*=\).*/\1/p'
}

_pstar() {
    local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]-}
    COMPREPLY=()
    # readline cuts key=value where COMP_WORDBREAKS has '='
    if [ "$word" = = ] || { [ "$COMP_CWORD" -gt 1 ] && [ "${COMP_WORDS[COMP_CWORD - 1]}" = = ]; }; then
        # shellcheck disable=SC2207 # words
        COMPREPLY=($(compgen -f -- "${word#=}"))
    elif [ "$COMP_CWORD" -eq 1 ]; then
        # shellcheck disable=SC2207
        COMPREPLY=($(compgen -W "$(_pstar_commands "$program") --help --version" -- "$word"))
    elif [ "${word#-}" != "$word" ]; then
        # shellcheck disable=SC2207
        COMPREPLY=($(compgen -W "$(_pstar_options "$program" "$command")" -- "$word"))
    else
        # shellcheck disable=SC2207
        COMPREPLY=($(compgen -f -- "$word"))
        case $command in
        train | eval | generate | config | plan)
            # shellcheck disable=SC2207
            [ "$COMP_CWORD" -eq 2 ] || COMPREPLY+=($(compgen -W "$(_pstar_keys "$program")" -- "$word"))
            ;;
        esac
    fi
    case ${COMPREPLY[0]-} in *=) compopt -o nospace 2>/dev/null ;; esac
    return 0
}

complete -o filenames -F _pstar pstar
