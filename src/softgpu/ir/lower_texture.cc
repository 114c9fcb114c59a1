// SPDX-License-Identifier: Apache-2.0
// Lowering of texture fetches, surface accesses and their queries. Part of Builder.
#include "softgpu/ir/builder.h"
#include "softgpu/ir/texture_codes.h"

namespace openmps::softgpu::ir {

using ptx::Type;

namespace {

// "2d", "a1d": a leading 'a' is a layered image.
void read_geometry(const ptx::Instruction& in, uint32_t* dimensions, bool* layered) {
  *layered = in.has("a1d") || in.has("a2d") || in.has("acube");
  *dimensions = in.has("3d") || in.has("cube") || in.has("acube") ? 3
                : in.has("2d") || in.has("a2d")                   ? 2
                                                                  : 1;
}

}  // namespace

// The handle and the coordinates of "[handle, {layer, x, y, z}]": coordinates that the geometry
// does not have are filled up in the text, and dropped here.
bool Builder::read_image_operand(const Operand& operand, uint32_t dimensions, bool layered,
                                 Lane lane, int32_t* handle, std::vector<int32_t>* coordinates) {
  const Operand& base = operand.items[0];
  if (base.kind != Operand::Kind::kRegister) {
    return unsupported("texture and surface references do not exist any more");
  }
  *handle = read(base, Lane::u64);
  const uint32_t wanted = dimensions + (layered ? 1 : 0);
  if (operand.items.size() < 1 + wanted) return unsupported("too few coordinates");
  for (uint32_t i = 0; i < wanted; ++i) {
    coordinates->push_back(read(operand.items[1 + i], layered && i == 0 ? Lane::u32 : lane));
  }
  return true;
}

bool Builder::lower_texture(const Instruction& in) {
  TextureCode code;
  read_geometry(in, &code.dimensions, &code.layered);
  code.half = in.type(0) == Type::kF16;
  code.integer = in.type(1) == Type::kS32;
  code.cube = in.has("cube") || in.has("acube");
  code.kind = in.has("level")  ? FetchKind::kLevel
              : in.has("grad") ? FetchKind::kGradient
                               : FetchKind::kBase;
  if (in.rule->mnemonic == "tld4") {
    code.kind = FetchKind::kGather;
    code.component = in.has("r") ? 0 : in.has("g") ? 1 : in.has("b") ? 2 : 3;
  }
  const std::vector<Operand> members = members_of(in.operands[0]);
  if (members.size() != 4) return unsupported("vector of the wrong size");
  const size_t more = code.kind == FetchKind::kLevel      ? 1
                      : code.kind == FetchKind::kGradient ? 2
                                                          : 0;
  if (in.operands.size() != 2 + more) {
    return unsupported("texture fetch with more operands than supported");
  }
  int32_t handle = -1;
  std::vector<int32_t> values;
  const Lane lane = code.integer ? Lane::u32 : Lane::f32;
  if (!read_image_operand(in.operands[1], code.dimensions, code.layered, lane, &handle, &values)) {
    return false;
  }
  if (code.kind == FetchKind::kLevel) values.push_back(read(in.operands[2], lane));
  for (size_t i = 2; code.kind == FetchKind::kGradient && i < 4; ++i) {
    const std::vector<Operand> gradient = members_of(in.operands[i]);
    if (gradient.size() < code.dimensions) return unsupported("a gradient of too few dimensions");
    for (uint32_t axis = 0; axis < code.dimensions; ++axis) {
      values.push_back(read(gradient[axis], Lane::f32));
    }
  }
  std::vector<int32_t> results;
  for (const Operand& member : members) results.push_back(result(member, code.half ? 2 : 4));
  Draft& draft = emit(IrOp::k_texture, -1, handle);
  draft.aux = code.encode();
  draft.extra_results = results;
  draft.extra_values = values;
  for (size_t i = 0; i < members.size(); ++i) store_result(members[i], results[i]);
  // "{...}|p": whether the texels have memory. There are no sparse arrays, so they have.
  if (in.operands[0].pair >= 0) emit(IrOp::k_pred_mov, register_value(in.operands[0].pair));
  return true;
}

bool Builder::lower_surface(const Instruction& in) {
  SurfaceCode code;
  read_geometry(in, &code.dimensions, &code.layered);
  code.boundary = in.has("trap")    ? Boundary::kTrap
                  : in.has("clamp") ? Boundary::kClamp
                                    : Boundary::kZero;
  code.formatted = in.has("p");
  code.count = in.has("v4") ? 4 : in.has("v2") ? 2 : 1;
  code.bytes = ptx::type_bytes(in.type(0));
  const bool load = in.rule->mnemonic == "suld";
  const std::vector<Operand> members = members_of(in.operands[load ? 0 : 1]);
  if (members.size() != code.count) return unsupported("vector of the wrong size");
  int32_t handle = -1;
  std::vector<int32_t> values;
  if (!read_image_operand(in.operands[load ? 1 : 0], code.dimensions, code.layered, Lane::u32,
                          &handle, &values)) {
    return false;
  }
  std::vector<int32_t> results;
  const Lane lane = code.bytes <= 2 ? Lane::u16 : code.bytes == 4 ? Lane::u32 : Lane::u64;
  for (const Operand& member : members) {
    if (load) {
      results.push_back(result(member, lane_bytes(lane)));
    } else {
      values.push_back(read(member, in.type(0) == Type::kF32 ? Lane::f32 : lane));
    }
  }
  Draft& draft = emit(load ? IrOp::k_surface_load : IrOp::k_surface_store, -1, handle);
  draft.aux = code.encode();
  draft.extra_results = results;
  draft.extra_values = values;
  for (size_t i = 0; i < results.size(); ++i) store_result(members[i], results[i]);
  return true;
}

bool Builder::lower_image_query(const Instruction& in) {
  const Operand& base = in.operands[1].items[0];
  if (base.kind != Operand::Kind::kRegister) {
    return unsupported("texture and surface references do not exist any more");
  }
  const ImageQuery query = in.has("width")        ? ImageQuery::kWidth
                           : in.has("height")     ? ImageQuery::kHeight
                           : in.has("depth")      ? ImageQuery::kDepth
                           : in.has("array_size") ? ImageQuery::kLayers
                                                  : ImageQuery::kLevels;
  const int32_t handle = read(base, Lane::u64);
  const int32_t d = result(in.operands[0], 4);
  Draft& draft = emit(IrOp::k_image_query, d, handle);
  draft.aux = static_cast<uint32_t>(query) | (in.rule->mnemonic == "suq" ? 0x100u : 0);
  store_result(in.operands[0], d);
  return true;
}

}  // namespace openmps::softgpu::ir
