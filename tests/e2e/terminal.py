# SPDX-License-Identifier: Apache-2.0
"""A terminal of 24 lines that a program runs on: the text on its screen, and keys for the program.

It understands the sequences of terminfo's vt100, and no others. Used by scenarios.py. Python standard
library only.
"""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

SEQUENCE = re.compile(rb"\x1b\[([?0-9;]*)([A-Za-z])|\x1b[()].|\x1b[=>78M]|[\x0e\x0f]")


class Terminal:
    def __init__(self, rows=24, columns=120):
        self.master, self.slave = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(self.slave)
        self.child = None
        self.rest = b""

    def start(self, box, command, term="vt100"):
        self.child = None
        self.resize(self.rows, self.columns)  # an empty screen
        self.child = box.start(command, env={"TERM": term}, stdin=self.slave, stdout=self.slave)

    def resize(self, rows, columns):
        """Changes the size. The screen is empty until the program, which gets a signal, has drawn it again."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.rows, self.columns = rows, columns
        self.cells = [[" "] * columns for _ in range(rows)]
        self.row = self.column = 0
        self.top, self.bottom = 0, rows - 1  # of the scrolling region
        if getattr(self, "child", None):
            self.child.send_signal(signal.SIGWINCH)

    def is_restored(self):
        return termios.tcgetattr(self.slave) == self.before

    def send(self, keys):
        os.write(self.master, keys.encode())

    def lines(self):
        return ["".join(row).rstrip() for row in self.cells]

    def text(self):
        return "\n".join(self.lines())

    def wait_for(self, condition, limit_s):
        """Waits until the text of the screen contains `condition`, or, if it is a function, satisfies it."""
        holds = condition if callable(condition) else lambda text: condition in text
        deadline = time.monotonic() + limit_s
        while not holds(self.text()):
            left = deadline - time.monotonic()
            if left <= 0 or not self.read(left):
                return holds(self.text())
        return True

    def read(self, limit_s):
        """Reads the program's next output. False if there was none."""
        if not select.select([self.master], [], [], limit_s)[0]:
            return False
        self.take(self.rest + os.read(self.master, 1 << 16))
        return True

    def close(self):
        os.close(self.master)
        os.close(self.slave)

    # --- output ----------------------------------------------------------------------

    def take(self, data):
        at = 0
        while at < len(data):
            match = SEQUENCE.match(data, at)
            if match:
                at = match.end()
                if match.group() == b"\x1bM":
                    self.line_up()
                elif match.group(2):
                    self.control(match.group(1).decode(), match.group(2).decode())
            elif data[at] == 0x1b:
                break  # the rest of the sequence has not arrived
            else:
                self.put(chr(data[at]))
                at += 1
        self.rest = data[at:]

    def put(self, character):
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self.line_down()
        elif character == "\t":
            self.column = min(self.column // 8 * 8 + 8, self.columns - 1)
        elif character == "\b":
            self.column = max(self.column - 1, 0)
        elif character >= " ":
            if self.column == self.columns:
                self.line_down()
                self.column = 0
            self.cells[self.row][self.column] = character
            self.column += 1

    def line_down(self):
        if self.row == self.bottom:
            self.cells[self.top:self.bottom + 1] = self.cells[self.top + 1:self.bottom + 1] + [[" "] * self.columns]
        else:
            self.row = min(self.row + 1, self.rows - 1)

    def line_up(self):
        if self.row == self.top:
            self.cells[self.top:self.bottom + 1] = [[" "] * self.columns] + self.cells[self.top:self.bottom]
        else:
            self.row = max(self.row - 1, 0)

    def control(self, parameters, what):
        numbers = [int(word) for word in re.findall(r"\d+", parameters)]
        first = numbers[0] if numbers else 0
        count = max(first, 1)
        if what == "H":
            self.row = min(max(first, 1), self.rows) - 1
            self.column = min(max(numbers[1] if len(numbers) > 1 else 1, 1), self.columns) - 1
        elif what == "r" and not parameters.startswith("?"):
            self.top = max(first, 1) - 1
            self.bottom = min(numbers[1] if len(numbers) > 1 else self.rows, self.rows) - 1
            self.row = self.column = 0
        elif what == "A":
            self.row = max(self.row - count, 0)
        elif what == "B":
            self.row = min(self.row + count, self.rows - 1)
        elif what == "C":
            self.column = min(self.column + count, self.columns - 1)
        elif what == "D":
            self.column = max(self.column - count, 0)
        elif what in "JK":
            begin = 0 if first else self.column
            end = self.column + 1 if first == 1 else self.columns
            self.cells[self.row][begin:end] = [" "] * (end - begin)
            if what == "J":
                for row in range(0 if first else self.row + 1, self.row if first == 1 else self.rows):
                    self.cells[row] = [" "] * self.columns
