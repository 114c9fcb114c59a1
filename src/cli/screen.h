// SPDX-License-Identifier: Apache-2.0
// A terminal that is taken over for a while, by ncurses: lines go on it, keys come from it. It is
// as it was when this is destroyed. One at a time, on one thread.
#pragma once

#include <optional>
#include <vector>

#include "cli/top_model.h"
#include "cuda/status.h"

struct screen;  // ncurses'

namespace openmps::cli {

class Screen {
 public:
  // Standard input and output are a terminal. CUDA_ERROR_NOT_SUPPORTED: nothing is known of its
  // kind (TERM), with the reason.
  static Result<Screen> take();
  Screen(Screen&& other) noexcept;
  Screen& operator=(Screen&&) = delete;
  ~Screen();

  [[nodiscard]] size_t width() const;
  [[nodiscard]] size_t height() const;
  void draw(const std::vector<Line>& lines);
  // The next key that has been pressed, if there is one. What means nothing here is left out, a new
  // size of the terminal too: width() and height() are that then.
  std::optional<Key> key();

 private:
  explicit Screen(screen* terminal) : terminal_(terminal) {}

  screen* terminal_;
};

}  // namespace openmps::cli
