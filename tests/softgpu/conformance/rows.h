// SPDX-License-Identifier: Apache-2.0
// Rows of the tables of cases. A row stands for many cases: {x,y} in it means one with x and one
// with y, and {2} what its second such list chose. Braces around registers, and those with a
// blank behind them, are PTX's own.
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

// The cases of `rows`, `like` that one where a row does not say.
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
