// SPDX-License-Identifier: Apache-2.0
// The terminal, taken over by ncurses: prints lines and reads keys. The destructor restores the
// terminal. One object at a time, on one thread.
#pragma once

#include <optional>
#include <vector>

#include "cli/top_model.h"
#include "cuda/status.h"

struct screen;  // ncurses'

namespace openmps::cli {

class Screen {
 public:
  // Standard input and output have to be a terminal. CUDA_ERROR_NOT_SUPPORTED with the reason: its
  // kind (TERM) is unknown.
  static Result<Screen> take();
  Screen(Screen&& other) noexcept;
  Screen& operator=(Screen&&) = delete;
  ~Screen();

  [[nodiscard]] size_t width() const;
  [[nodiscard]] size_t height() const;
  void draw(const std::vector<Line>& lines);
  // The next key that has been pressed, if any. Keys without a meaning are skipped, and so is a
  // change of the terminal's size, which width() and height() return then.
  std::optional<Key> key();

 private:
  explicit Screen(screen* terminal) : terminal_(terminal) {}

  screen* terminal_;
};

}  // namespace openmps::cli
