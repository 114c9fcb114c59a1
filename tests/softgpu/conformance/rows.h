// SPDX-License-Identifier: Apache-2.0
// Rows of the tables of cases. A row stands for many cases: {x,y} in it means one case with x and
// one with y, and {2} stands for the choice from the second such list. Braces around registers, and
// those followed by a blank, are part of the PTX.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cases.h"

namespace conformance {

struct Row {
  Inputs inputs;
  const char* result;
  const char* code;
};

std::vector<std::string> expanded(const std::string& text);

// Adds the cases of `rows`. What a row does not specify is as in `like`.
void add_rows(const Row* rows, size_t count, const Case& like, std::vector<Case>* all);
template <size_t n>
void add_rows(const Row (&rows)[n], const Case& like, std::vector<Case>* all) {
  add_rows(rows, n, like, all);
}

void add_approximate_cases(std::vector<Case>* all);
void add_image_cases(std::vector<Case>* all);
void add_memory_cases(std::vector<Case>* all);
void add_group_cases(std::vector<Case>* all);
void add_tensor_cases(std::vector<Case>* all);
void add_tile_cases(std::vector<Case>* all);

}  // namespace conformance
