#compdef openmps
# SPDX-License-Identifier: Apache-2.0
# Completion of openmps in zsh: subcommands and options are read from --help; behind `run --` comes a
# program with its own arguments.

_openmps() {
    local help
    local -i dashes=$words[(I)--]
    if [[ $words[2] == run ]] && (( dashes > 2 && dashes < CURRENT )); then
        shift $dashes words
        (( CURRENT -= dashes ))
        _normal
        return
    fi
    if (( CURRENT == 2 )); then
        help="$($words[1] --help 2>/dev/null)"
    elif [[ $words[2] == cdi ]] && (( CURRENT > 3 )); then
        help="$($words[1,3] --help 2>/dev/null)"
    else
        help="$($words[1] $words[2] --help 2>/dev/null)"
    fi
    compadd -- ${(f)"$(awk '
        /^[A-Z][a-z]*:/ { section = $1 }
        section == "Options:" && /^ *-/ { gsub(/,/, "\n", $1); print $1 }
        section == "Subcommands:" && /^  [a-z]/ { print $1 }' <<<$help)"}
}

_openmps "$@"
