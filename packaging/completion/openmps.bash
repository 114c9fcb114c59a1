# SPDX-License-Identifier: Apache-2.0
# Completion of openmps in bash: subcommands and options are read from --help; behind `run --` comes
# a program with its own arguments.

_openmps() {
    local word=${COMP_WORDS[COMP_CWORD]} help
    if [ "${COMP_WORDS[1]}" = run ] && [[ " ${COMP_WORDS[*]:2:COMP_CWORD-2} " == *" -- "* ]]; then
        mapfile -t COMPREPLY < <(compgen -c -f -- "$word" | sort -u)
        return
    fi
    if [ "$COMP_CWORD" = 1 ]; then
        help=$("${COMP_WORDS[0]}" --help 2>/dev/null)
    elif [ "${COMP_WORDS[1]}" = cdi ] && [ "$COMP_CWORD" -gt 2 ]; then
        help=$("${COMP_WORDS[@]:0:3}" --help 2>/dev/null)
    else
        help=$("${COMP_WORDS[0]}" "${COMP_WORDS[1]}" --help 2>/dev/null)
    fi
    mapfile -t COMPREPLY < <(compgen -W "$(awk '
        /^[A-Z][a-z]*:/ { section = $1 }
        section == "Options:" && /^ *-/ { gsub(/,/, "\n", $1); print $1 }
        section == "Subcommands:" && /^  [a-z]/ { print $1 }' <<<"$help")" -- "$word")
}

complete -F _openmps openmps
