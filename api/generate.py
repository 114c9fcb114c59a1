#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates OpenMPS' driver API layer from its description.

Reads the .toml files given (default: all beside this program) and writes headers and sources into
<output>/api/. A malformed description ends with 'file:line: message' and status 1; nothing is
written then. See README.md beside this program.
"""
import argparse
import glob
import os
import sys

from generator import coverage, emit_client, emit_messages, emit_tables
from generator.description import DescriptionError, load


def generate(functions):
    """{file name: text}. Symbols are numbered in alphabetical order."""
    functions = sorted(functions, key=lambda f: f.symbol)
    return {
        "prototypes.h": emit_tables.prototypes(functions),
        "driver_table.h": emit_tables.driver_table(functions),
        "proc_address.h": emit_tables.proc_address_header(),
        "proc_address.cc": emit_tables.proc_address_source(functions),
        "softgpu_stubs.cc": emit_tables.softgpu_stubs(functions),
        "softgpu_table.h": emit_tables.softgpu_table_header(),
        "exports.map": emit_tables.exports_map(),
        "client_impl.h": emit_client.client_impl(functions),
        "client_entry.cc": emit_client.client_entry(functions),
        "client_remote.cc": emit_messages.client_remote(functions),
        "messages.h": emit_messages.messages(functions),
        "worker_dispatch.h": emit_messages.worker_dispatch_header(),
        "worker_dispatch.cc": emit_messages.worker_dispatch(functions),
    }


def write_if_changed(path, text):
    """Leaves the time stamp of an unchanged file alone, so that nothing is rebuilt for it."""
    try:
        with open(path, encoding="utf-8") as file:
            if file.read() == text:
                return
    except OSError:
        pass
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", metavar="DIR", help="write the generated files to DIR/api/")
    parser.add_argument("--list", action="store_true", help="print the names of generated files")
    parser.add_argument("--coverage", metavar="FILE", help="write the coverage page")
    parser.add_argument("--check-coverage", metavar="FILE",
                        help="status 1 if the coverage page is not up to date")
    parser.add_argument("--tested", metavar="DIR",
                        help="symbols that tests call, DIR/*.txt, for the coverage page (default: "
                        "tested/ beside generate.py, for the default descriptions)")
    parser.add_argument("toml", nargs="*", help="descriptions (default: *.toml beside generate.py)")
    options = parser.parse_args()
    here = os.path.dirname(os.path.abspath(__file__))
    try:
        functions = load(options.toml or sorted(glob.glob(os.path.join(here, "*.toml"))))
        folder = options.tested or (None if options.toml else os.path.join(here, "tested"))
        tested = coverage.load_tested(folder, functions) if folder else {}
    except (DescriptionError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    files = generate(functions)
    if options.list:
        print("\n".join(files))
    if options.output:
        folder = os.path.join(options.output, "api")
        os.makedirs(folder, exist_ok=True)
        for name, text in files.items():
            write_if_changed(os.path.join(folder, name), text)
    if options.coverage:
        write_if_changed(options.coverage, coverage.page(functions, tested))
    if options.check_coverage:
        with open(options.check_coverage, encoding="utf-8") as file:
            if file.read() != coverage.page(functions, tested):
                print(f"{options.check_coverage} is not up to date; run: "
                      f"api/generate.py --coverage {options.check_coverage}", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
