#compdef openmps-control nvidia-cuda-mps-control
# SPDX-License-Identifier: Apache-2.0
# Completion of openmps-control in zsh. Options, commands and what they take are read from --help;
# servers and clients come from the daemon.

_openmps_control() {
    local program=$words[1] before=$words[CURRENT-1]
    local help="$($program --help 2>/dev/null)"
    local line="$(grep -E -- "^  $before( |$)" <<<$help)"
    local -a found
    if [[ $before == --config || $before == --check-config ]]; then
        _files
        return
    elif (( CURRENT == 2 )) || [[ $CURRENT == 3 && $before == -* ]]; then
        found=(${(f)"$(awk '
            /^[A-Z][a-z]*:$/ { section = $1 }
            section == "Options:" && /^ *-/ {
                for (i = 1; i <= NF && $i ~ /^-/; i++) { sub(/,$/, "", $i); print $i }
            }
            section == "Commands:" && /^  [a-z]/ { print $1 }' <<<$help)"})
    elif [[ $before == -p || $line == *"<server PID>"* ]]; then
        found=(${(f)"$(echo get_server_list | $program 2>/dev/null | grep -E '^[0-9]+$')"})
    elif (( CURRENT >= 4 )) &&
        grep -q -- "^  $words[CURRENT-2] <server PID> <client PID>" <<<$help; then
        found=(${(f)"$(echo get_client_list $before | $program 2>/dev/null | grep -E '^[0-9]+$')"})
    fi
    found+=(${(f)"$(grep -oE -- '\[?-[-a-z]+' <<<$line | tr -d '[')"})
    compadd -- $found
}

_openmps_control "$@"
