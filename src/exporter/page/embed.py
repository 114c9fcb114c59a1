#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""embed.py PAGE OUTPUT: makes page.h's definitions from the page, with the policy that allows its one script and its
one style sheet by their hashes."""

import base64
import hashlib
import re
import sys
from pathlib import Path

PIECE_BYTES = 2000  # of a string literal: compilers take 65,535 at least


def hash_of(page, tag):
    found = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.S)
    if len(found) != 1:
        sys.exit(f"the page has {len(found)} <{tag}> without attributes instead of one")
    return "'sha256-" + base64.b64encode(hashlib.sha256(found[0].encode()).digest()).decode() + "'"


def literal(data):
    text = ""
    for at in range(0, len(data), PIECE_BYTES):
        text += '    "' + "".join(f"\\{byte:03o}" if byte < 32 or byte > 126 or byte in b'"\\?' else chr(byte)
                                  for byte in data[at:at + PIECE_BYTES]) + '"\n'
    return text


def main():
    page = Path(sys.argv[1]).read_text(encoding="utf-8")
    policy = (f"default-src 'none'; script-src {hash_of(page, 'script')}; style-src {hash_of(page, 'style')}; "
              "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
    data = page.encode()
    Path(sys.argv[2]).write_text(
        "// Made by src/exporter/page/embed.py.\n#include \"exporter/page.h\"\n\nnamespace openmps::exporter {\n\n"
        f"const char* const kPage =\n{literal(data)};\nconst size_t kPageBytes = {len(data)};\n"
        f"const char* const kPagePolicy =\n{literal(policy.encode())};\n\n}}  // namespace openmps::exporter\n",
        encoding="utf-8")


if __name__ == "__main__":
    main()
