#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates OpenMPS' driver API layer and the commands between client and worker.

Reads *.toml (or the files given) and commands/*.toml beside this program and writes headers and
sources into <output>/api/ and <output>/wire/. A malformed description ends with
'file:line: message' and status 1; nothing is written then. See README.md beside this program.
"""
import argparse
import glob
import os
import sys

from generator import commands, coverage, emit_calls, emit_client, emit_commands, emit_tables
from generator.description import DescriptionError, load
from generator.text import write_if_changed


def generate(functions, protocol):
    """{file name: text}. Symbols are numbered in alphabetical order."""
    functions = sorted(functions, key=lambda f: f.symbol)
    return {
        "api/prototypes.h": emit_tables.prototypes(functions),
        "api/driver_table.h": emit_tables.driver_table(functions),
        "api/proc_address.h": emit_tables.proc_address_header(),
        "api/proc_address.cc": emit_tables.proc_address_source(functions),
        "api/softgpu_calls.cc": emit_tables.softgpu_calls(functions),
        "api/softgpu_stubs.cc": emit_tables.softgpu_stubs(functions),
        "api/softgpu_table.h": emit_tables.softgpu_table_header(),
        "api/exports.map": emit_tables.exports_map(),
        "api/client_impl.h": emit_client.client_impl(functions),
        "api/client_entry.cc": emit_client.client_entry(functions),
        "api/client_handlers.h": emit_calls.client_handlers(functions),
        "api/client_calls.cc": emit_calls.client_calls(functions),
        **emit_commands.headers(protocol),
        "wire/command_info.cc": emit_commands.info(protocol),
    }


def update(path, text, check):
    """Brings a committed page up to date, or says that it is not: True if it is."""
    if not check:
        write_if_changed(path, text)
        return True
    with open(path, encoding="utf-8") as file:
        good = file.read() == text
    if not good:
        print(f"{path} is not up to date; run: api/generate.py --{check} {path}", file=sys.stderr)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", metavar="DIR", help="write the generated files to DIR")
    for page, what in (("coverage", "the coverage page"), ("wire-format", "the table of commands")):
        parser.add_argument(f"--{page}", metavar="FILE", help=f"write {what}")
        parser.add_argument(f"--check-{page}", metavar="FILE",
                            help=f"status 1 if {what} is not up to date")
    parser.add_argument("--tested", metavar="DIR",
                        help="symbols that tests call, DIR/*.txt, for the coverage page (default: "
                        "tested/ beside generate.py, for the default descriptions)")
    parser.add_argument("toml", nargs="*", help="descriptions (default: *.toml beside generate.py)")
    options = parser.parse_args()
    here = os.path.dirname(os.path.abspath(__file__))
    try:
        functions = load(options.toml or sorted(glob.glob(os.path.join(here, "*.toml"))))
        protocol = commands.load(sorted(glob.glob(os.path.join(here, "commands", "*.toml"))))
        folder = options.tested or (None if options.toml else os.path.join(here, "tested"))
        tested = coverage.load_tested(folder, functions) if folder else {}
    except (DescriptionError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    if options.output:
        for name, text in generate(functions, protocol).items():
            path = os.path.join(options.output, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_if_changed(path, text)
    good = True
    for page, make in (("coverage", lambda path: coverage.page(functions, tested)),
                       ("wire-format", lambda path: emit_commands.page(path, protocol))):
        for option in (page, f"check-{page}"):
            path = getattr(options, option.replace("-", "_"))
            if path:
                good &= update(path, make(path), page if option != page else None)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
