# SPDX-License-Identifier: Apache-2.0
# Completion of openmps in fish: subcommands and options are read from --help; behind `run --` comes a
# program with its own arguments.

function __openmps
    set -l words (commandline -opc)
    if test (count $words) -ge 3; and test $words[2] = run; and contains -- -- $words[3..-1]
        set -l dashes (contains -i -- -- $words)
        complete -C (string join ' ' -- $words[(math $dashes + 1)..-1] (commandline -ct))
        return
    end
    set -l help
    if test (count $words) -eq 1
        set help ($words[1] --help 2>/dev/null)
    else if test $words[2] = cdi; and test (count $words) -ge 3
        set help ($words[1..3] --help 2>/dev/null)
    else
        set help ($words[1] $words[2] --help 2>/dev/null)
    end
    printf '%s\n' $help | awk '
        /^[A-Z][a-z]*:/ { section = $1 }
        section == "Options:" && /^ *-/ { gsub(/,/, "\n", $1); print $1 }
        section == "Subcommands:" && /^  [a-z]/ { print $1 }'
end

complete -c openmps -f -a '(__openmps)'
