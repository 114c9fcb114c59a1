// SPDX-License-Identifier: Apache-2.0
// Passes over the body of a function: finds its end, and what it names of the module. Part of the
// parser of a module whose functions are compiled when they are first needed.
#pragma once

#include "softgpu/ptx/ast.h"
#include "softgpu/ptx/parser_body.h"

namespace openmps::softgpu::ptx {

class OutlineParser : public BodyParser {
 protected:
  using BodyParser::BodyParser;

  // From the body's "{" to behind its "}". Its shared variables become the module's. False: the
  // body does not end, or declares more of the module; the reader is somewhere in it then.
  bool pass_over(Mentions* mentions);

 private:
  enum class Begun { kStatement, kDirective, kUnknown };
  Begun begin_statement(Mentions* mentions);
  Begun directive();
  void note_callee(Mentions* mentions);
  void rest_of_statement(Mentions* mentions);

  bool odd_names_ = false;  // of shared variables, which look like registers
};

}  // namespace openmps::softgpu::ptx
