// SPDX-License-Identifier: Apache-2.0
// See rows.h.
#include "rows.h"

#include <algorithm>
#include <cctype>

namespace conformance {
namespace {

// Expands the lists in `text` from `begin` on. `chosen` has the choices of the lists before
// `begin`.
void expand(const std::string& text, size_t begin, std::vector<std::string>* chosen,
            std::vector<std::string>* out) {
  size_t open = text.find('{', begin);
  while (open != std::string::npos && (text[open + 1] == '%' || text[open + 1] == ' ')) {
    open = text.find('{', open + 1);
  }
  if (open == std::string::npos) {
    out->push_back(text);
    return;
  }
  const size_t close = text.find('}', open);
  const auto with = [&](const std::string& choice) {
    return text.substr(0, open) + choice + text.substr(close + 1);
  };
  if (close == open + 2 && isdigit(text[open + 1])) {
    const std::string& choice = chosen->at(static_cast<size_t>(text[open + 1] - '1'));
    expand(with(choice), open + choice.size(), chosen, out);
    return;
  }
  for (size_t at = open + 1; at <= close;) {
    const size_t end = std::min(text.find(',', at), close);
    const std::string choice = text.substr(at, end - at);
    chosen->push_back(choice);
    expand(with(choice), open + choice.size(), chosen, out);
    chosen->pop_back();
    at = end + 1;
  }
}

}  // namespace

std::vector<std::string> expanded(const std::string& text) {
  std::vector<std::string> chosen, out;
  expand(text, 0, &chosen, &out);
  return out;
}

void add_rows(const Row* rows, size_t count, const Case& like, std::vector<Case>* all) {
  for (const Row* row = rows; row < rows + count; ++row) {
    for (std::string& code : expanded(row->code)) {
      Case one = like;
      one.inputs = row->inputs;
      one.result = row->result;
      one.code = std::move(code);
      all->push_back(std::move(one));
    }
  }
}

}  // namespace conformance
