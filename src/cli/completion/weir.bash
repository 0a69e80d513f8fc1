# weir.bash - completes the commands, options and files of weir in bash. The program itself tells its commands and options.
# shellcheck shell=bash

_weir() {
    local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]-} words
    if [ "$COMP_CWORD" -eq 1 ] || { [ "$COMP_CWORD" -eq 2 ] && [ "$command" = help ]; }; then
        words=$(weir help | LC_ALL=C sed -n '/^Commands:/,/^$/s/^  \([a-z]*\)  .*/\1/p')
    elif [[ $word == -* ]]; then
        words=$(weir help "$command" 2>/dev/null | LC_ALL=C sed -n 's/^  *\(-[a-zA-Z], \)\{0,1\}\(--[a-z-]*\).*/\2/p')
    fi
    # Words without blanks, one a line. Files are completed by bash if nothing here fits.
    mapfile -t COMPREPLY < <(compgen -W "${words-}" -- "$word")
}
complete -o default -F _weir weir
