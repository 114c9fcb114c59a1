// SPDX-License-Identifier: Apache-2.0
// A program of the build: writes the manual page of openmps-control, with the rows of the command
// table in the section COMMANDS of a page that has the rest.
// usage: manual_page PAGE.in PAGE
#include <fstream>
#include <iostream>
#include <string>

#include "control/command.h"

int main(int argc, char** argv) {
  if (argc != 3) return 1;
  std::ifstream in(argv[1]);
  std::ofstream out(argv[2]);
  std::string line;
  while (std::getline(in, line)) {
    out << line << '\n';
    if (line == ".SH COMMANDS") out << openmps::control::manual_of_commands();
  }
  out.close();
  if (in.eof() && out) return 0;
  std::cerr << "manual_page: " << argv[1] << " or " << argv[2] << " can't be read or written\n";
  return 1;
}
