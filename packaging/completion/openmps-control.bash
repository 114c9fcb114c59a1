# SPDX-License-Identifier: Apache-2.0
# Completion of openmps-control in bash. Options, commands and what they take are read from --help;
# servers and clients come from the daemon.

_openmps_control() {
    local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    local help words= line
    help=$("$program" --help 2>/dev/null)
    line=$(grep -E -- "^  $before( |$)" <<<"$help")
    if [[ $before == --config || $before == --check-config ]]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        return
    elif [ "$COMP_CWORD" = 1 ] || [[ $COMP_CWORD == 2 && $before == -* ]]; then
        words=$(awk '
            /^[A-Z][a-z]*:$/ { section = $1 }
            section == "Options:" && /^ *-/ {
                for (i = 1; i <= NF && $i ~ /^-/; i++) { sub(/,$/, "", $i); print $i }
            }
            section == "Commands:" && /^  [a-z]/ { print $1 }' <<<"$help")
    elif [[ $before == -p || $line == *"<server PID>"* ]]; then
        words=$(echo get_server_list | "$program" 2>/dev/null | grep -E '^[0-9]+$')
    elif [ "$COMP_CWORD" -ge 3 ] &&
        grep -q -- "^  ${COMP_WORDS[COMP_CWORD - 2]} <server PID> <client PID>" <<<"$help"; then
        words=$(echo "get_client_list $before" | "$program" 2>/dev/null | grep -E '^[0-9]+$')
    fi
    words+=" $(grep -oE -- '\[?-[-a-z]+' <<<"$line" | tr -d '[')"
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}

complete -F _openmps_control openmps-control nvidia-cuda-mps-control
