// SPDX-License-Identifier: Apache-2.0
// The functions of LLVM's C API that the compiled tier calls, found by dlopen() when a kernel is
// first compiled: nothing is linked to LLVM, and nothing of it is needed to build. The C API is a
// stable interface, so its declarations are written here. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace openmps::softgpu::tier {

struct LlvmContext;
struct LlvmModule;
struct LlvmType;
struct LlvmValue;
struct LlvmBlock;
struct LlvmBuilder;
struct LlvmTarget;
struct LlvmMachine;
struct LlvmBuffer;
struct LlvmPassOptions;
struct LlvmError;

using Context = LlvmContext*;
using Module = LlvmModule*;
using Type = LlvmType*;
using Val = LlvmValue*;
using BlockRef = LlvmBlock*;
using BuilderRef = LlvmBuilder*;

// Values of LLVMIntPredicate and LLVMRealPredicate.
enum IntCompare : int { kEq = 32, kNe, kUgt, kUge, kUlt, kUle, kSgt, kSge, kSlt, kSle };
enum RealCompare : int {
  kOeq = 1,
  kOgt,
  kOge,
  kOlt,
  kOle,
  kOne,
  kOrd,
  kUno,
  kUeq,
  kUgtF,
  kUgeF,
  kUltF,
  kUleF,
  kUneF
};

// NAME(result, function without "LLVM", parameters)
#define LLVM_FUNCTIONS(NAME)                                                                    \
  NAME(Context, ContextCreate, ())                                                              \
  NAME(void, ContextDispose, (Context))                                                         \
  NAME(Module, ModuleCreateWithNameInContext, (const char*, Context))                           \
  NAME(void, DisposeModule, (Module))                                                           \
  NAME(void, SetTarget, (Module, const char*))                                                  \
  NAME(Type, Int1TypeInContext, (Context))                                                      \
  NAME(Type, IntTypeInContext, (Context, unsigned))                                             \
  NAME(Type, FloatTypeInContext, (Context))                                                     \
  NAME(Type, DoubleTypeInContext, (Context))                                                    \
  NAME(Type, VectorType, (Type, unsigned))                                                      \
  NAME(Type, PointerType, (Type, unsigned))                                                     \
  NAME(Type, FunctionType, (Type, Type*, unsigned, int))                                        \
  NAME(Type, TypeOf, (Val))                                                                     \
  NAME(Val, AddFunction, (Module, const char*, Type))                                           \
  NAME(Val, GetParam, (Val, unsigned))                                                          \
  NAME(unsigned, LookupIntrinsicID, (const char*, size_t))                                      \
  NAME(Val, GetIntrinsicDeclaration, (Module, unsigned, Type*, size_t))                         \
  NAME(Type, IntrinsicGetType, (Context, unsigned, Type*, size_t))                              \
  NAME(Val, ConstInt, (Type, unsigned long long, int))                                          \
  NAME(Val, ConstNull, (Type))                                                                  \
  NAME(Val, ConstAllOnes, (Type))                                                               \
  NAME(Val, ConstVector, (Val*, unsigned))                                                      \
  NAME(Val, ConstReal, (Type, double))                                                          \
  NAME(Val, GetUndef, (Type))                                                                   \
  NAME(int, IsConstant, (Val))                                                                  \
  NAME(BlockRef, AppendBasicBlockInContext, (Context, Val, const char*))                        \
  NAME(void, MoveBasicBlockAfter, (BlockRef, BlockRef))                                         \
  NAME(BlockRef, GetInsertBlock, (BuilderRef))                                                  \
  NAME(BuilderRef, CreateBuilderInContext, (Context))                                           \
  NAME(void, DisposeBuilder, (BuilderRef))                                                      \
  NAME(void, PositionBuilderAtEnd, (BuilderRef, BlockRef))                                      \
  NAME(void, PositionBuilderBefore, (BuilderRef, Val))                                          \
  NAME(Val, BuildRet, (BuilderRef, Val))                                                        \
  NAME(Val, BuildBr, (BuilderRef, BlockRef))                                                    \
  NAME(Val, BuildCondBr, (BuilderRef, Val, BlockRef, BlockRef))                                 \
  NAME(Val, BuildSwitch, (BuilderRef, Val, BlockRef, unsigned))                                 \
  NAME(void, AddCase, (Val, Val, BlockRef))                                                     \
  NAME(Val, BuildUnreachable, (BuilderRef))                                                     \
  NAME(Val, BuildAlloca, (BuilderRef, Type, const char*))                                       \
  NAME(Val, BuildLoad2, (BuilderRef, Type, Val, const char*))                                   \
  NAME(Val, BuildStore, (BuilderRef, Val, Val))                                                 \
  NAME(void, SetAlignment, (Val, unsigned))                                                     \
  NAME(Val, BuildGEP2, (BuilderRef, Type, Val, Val*, unsigned, const char*))                    \
  NAME(Val, BuildCall2, (BuilderRef, Type, Val, Val*, unsigned, const char*))                   \
  NAME(Val, BuildAdd, (BuilderRef, Val, Val, const char*))                                      \
  NAME(Val, BuildSub, (BuilderRef, Val, Val, const char*))                                      \
  NAME(Val, BuildMul, (BuilderRef, Val, Val, const char*))                                      \
  NAME(Val, BuildAnd, (BuilderRef, Val, Val, const char*))                                      \
  NAME(Val, BuildOr, (BuilderRef, Val, Val, const char*))                                       \
  NAME(Val, BuildXor, (BuilderRef, Val, Val, const char*))                                      \
  NAME(Val, BuildNot, (BuilderRef, Val, const char*))                                           \
  NAME(Val, BuildShl, (BuilderRef, Val, Val, const char*))                                      \
  NAME(Val, BuildLShr, (BuilderRef, Val, Val, const char*))                                     \
  NAME(Val, BuildAShr, (BuilderRef, Val, Val, const char*))                                     \
  NAME(Val, BuildFAdd, (BuilderRef, Val, Val, const char*))                                     \
  NAME(Val, BuildFSub, (BuilderRef, Val, Val, const char*))                                     \
  NAME(Val, BuildFMul, (BuilderRef, Val, Val, const char*))                                     \
  NAME(Val, BuildFDiv, (BuilderRef, Val, Val, const char*))                                     \
  NAME(Val, BuildICmp, (BuilderRef, int, Val, Val, const char*))                                \
  NAME(Val, BuildFCmp, (BuilderRef, int, Val, Val, const char*))                                \
  NAME(Val, BuildSelect, (BuilderRef, Val, Val, Val, const char*))                              \
  NAME(Val, BuildTrunc, (BuilderRef, Val, Type, const char*))                                   \
  NAME(Val, BuildZExt, (BuilderRef, Val, Type, const char*))                                    \
  NAME(Val, BuildSExt, (BuilderRef, Val, Type, const char*))                                    \
  NAME(Val, BuildBitCast, (BuilderRef, Val, Type, const char*))                                 \
  NAME(Val, BuildIntToPtr, (BuilderRef, Val, Type, const char*))                                \
  NAME(Val, BuildPtrToInt, (BuilderRef, Val, Type, const char*))                                \
  NAME(Val, BuildSIToFP, (BuilderRef, Val, Type, const char*))                                  \
  NAME(Val, BuildUIToFP, (BuilderRef, Val, Type, const char*))                                  \
  NAME(Val, BuildFPToSI, (BuilderRef, Val, Type, const char*))                                  \
  NAME(Val, BuildFPToUI, (BuilderRef, Val, Type, const char*))                                  \
  NAME(Val, BuildFPExt, (BuilderRef, Val, Type, const char*))                                   \
  NAME(Val, BuildFPTrunc, (BuilderRef, Val, Type, const char*))                                 \
  NAME(Val, BuildExtractElement, (BuilderRef, Val, Val, const char*))                           \
  NAME(Val, BuildInsertElement, (BuilderRef, Val, Val, Val, const char*))                       \
  NAME(Val, BuildShuffleVector, (BuilderRef, Val, Val, Val, const char*))                       \
  NAME(void, InitializeX86TargetInfo, ())                                                       \
  NAME(void, InitializeX86Target, ())                                                           \
  NAME(void, InitializeX86TargetMC, ())                                                         \
  NAME(void, InitializeX86AsmPrinter, ())                                                       \
  NAME(int, GetTargetFromTriple, (const char*, LlvmTarget**, char**))                           \
  NAME(LlvmMachine*, CreateTargetMachine,                                                       \
       (LlvmTarget*, const char*, const char*, const char*, int, int, int))                     \
  NAME(void, DisposeTargetMachine, (LlvmMachine*))                                              \
  NAME(int, TargetMachineEmitToMemoryBuffer, (LlvmMachine*, Module, int, char**, LlvmBuffer**)) \
  NAME(const char*, GetBufferStart, (LlvmBuffer*))                                              \
  NAME(size_t, GetBufferSize, (LlvmBuffer*))                                                    \
  NAME(void, DisposeMemoryBuffer, (LlvmBuffer*))                                                \
  NAME(LlvmPassOptions*, CreatePassBuilderOptions, ())                                          \
  NAME(void, DisposePassBuilderOptions, (LlvmPassOptions*))                                     \
  NAME(LlvmError*, RunPasses, (Module, const char*, LlvmMachine*, LlvmPassOptions*))            \
  NAME(void, ConsumeError, (LlvmError*))                                                        \
  NAME(int, VerifyModule, (Module, int, char**))                                                \
  NAME(char*, PrintModuleToString, (Module))                                                    \
  NAME(void, DisposeMessage, (char*))

struct Llvm {
#define NAME(result, name, parameters) result(*name) parameters = nullptr;
  LLVM_FUNCTIONS(NAME)
#undef NAME
};

// nullptr: there is no LLVM that has all of them. Loaded once, and never unloaded.
const Llvm* load_llvm();

}  // namespace openmps::softgpu::tier
