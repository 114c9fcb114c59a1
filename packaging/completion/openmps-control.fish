# SPDX-License-Identifier: Apache-2.0
# Completion of openmps-control in fish. Options, commands and what they take are read from --help;
# servers and clients come from the daemon.

function __openmps_control
    set -l words (commandline -opc)
    set -l program $words[1]
    set -l before $words[-1]
    set -l help ($program --help 2>/dev/null)
    set -l line (string match -r -- "^  $before(?: .*|)\$" $help)
    if string match -q -- '--*config' $before
        __fish_complete_path (commandline -ct)
        return
    else if string match -qr -- '^(1 |2 -)' "$(count $words) $before"
        printf '%s\n' $help | awk '
            /^[A-Z][a-z]*:$/ { section = $1 }
            section == "Options:" && /^ *-/ {
                for (i = 1; i <= NF && $i ~ /^-/; i++) { sub(/,$/, "", $i); print $i }
            }
            section == "Commands:" && /^  [a-z]/ { print $1 }'
    else if test "$before" = -p; or string match -q -- '*<server PID>*' $line
        echo get_server_list | $program 2>/dev/null | string match -r '^[0-9]+$'
    else if test (count $words) -ge 3; and string match -q -- "  $words[-2] <server PID> <client PID>*" $help
        echo get_client_list $before | $program 2>/dev/null | string match -r '^[0-9]+$'
    end
    string match -ra -- '(?<=\[|\s)-[-a-z]+' $line
end

for program in openmps-control nvidia-cuda-mps-control
    complete -c $program -f -a '(__openmps_control)'
end
