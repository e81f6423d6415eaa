// One call of an op as a value: its entry, its arguments, and a visitor over every piece of memory
// that they refer to, so that a call can be named, compared and repeated on other memory.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/ops/backend.h"

namespace mt::kernels::replay {

// What a call does with a piece of memory. kWrite: writes some of it, and may read it.
enum class Access : uint8_t { kRead, kWrite };

// Visits the memory of a call and may redirect it. Absent operands are skipped.
class OperandVisitor {
 public:
  virtual ~OperandVisitor() = default;
  virtual void Operand(std::string_view name, Tensor* tensor, Access access) = 0;
  // A strided view of s x b x heads x d elements.
  struct Heads {
    HeadView* view = nullptr;
    const AttentionShape* shape = nullptr;
    int64_t heads = 0;
    // From the first element to behind the last one, with what lies between.
    int64_t Bytes() const;
  };
  virtual void View(std::string_view name, const Heads& heads, Access access) = 0;
  // Memory that is not an operand of the mathematics: workspaces, the scalar block.
  virtual void Block(std::string_view name, void** data, int64_t bytes, Access access) = 0;
  // A property that distinguishes two calls with equal operands: "add", "swiglu".
  virtual void Mark(std::string_view text) = 0;
};

// Argument structs for entries that take plain parameters.
struct AddToArgs {
  Tensor to, from;
};
struct SumPartialsArgs {
  Tensor out;
  Partials partials;
};
struct CastArgs {
  Tensor to, from;
};
struct FillArgs {
  Tensor to;
  double value = 0;
};
struct RowSumArgs {
  Tensor x;
  GradMode mode = GradMode::kOverwrite;
  Tensor out;
};
struct AdvanceArgs {
  StepScalars* scalars = nullptr;
  const EndOfStep* vector = nullptr;
  StepConstants constants;
};

// One overload per argument struct; visits its members in order.
void Visit(ActArgs* args, OperandVisitor* visitor);
void Visit(ActGradArgs* args, OperandVisitor* visitor);
void Visit(AddNormArgs* args, OperandVisitor* visitor);
void Visit(AddNormGradArgs* args, OperandVisitor* visitor);
void Visit(AttentionForwardArgs* args, OperandVisitor* visitor);
void Visit(AttentionGradArgs* args, OperandVisitor* visitor);
void Visit(EmbeddingGatherArgs* args, OperandVisitor* visitor);
void Visit(EmbeddingScatterArgs* args, OperandVisitor* visitor);
void Visit(LinearForwardArgs* args, OperandVisitor* visitor);
void Visit(LinearForwardActArgs* args, OperandVisitor* visitor);
void Visit(LinearInputGradArgs* args, OperandVisitor* visitor);
void Visit(LinearInputGradActArgs* args, OperandVisitor* visitor);
void Visit(LinearWeightGradArgs* args, OperandVisitor* visitor);
void Visit(LossStatsArgs* args, OperandVisitor* visitor);
void Visit(LossFinishArgs* args, OperandVisitor* visitor);
void Visit(RotateArgs* args, OperandVisitor* visitor);
void Visit(RotateGradArgs* args, OperandVisitor* visitor);
void Visit(SquareSumArgs* args, OperandVisitor* visitor);
void Visit(AdamWArgs* args, OperandVisitor* visitor);
void Visit(SgdArgs* args, OperandVisitor* visitor);
void Visit(FillNormalArgs* args, OperandVisitor* visitor);
void Visit(AddToArgs* args, OperandVisitor* visitor);
void Visit(SumPartialsArgs* args, OperandVisitor* visitor);
void Visit(CastArgs* args, OperandVisitor* visitor);
void Visit(FillArgs* args, OperandVisitor* visitor);
void Visit(RowSumArgs* args, OperandVisitor* visitor);
void Visit(AdvanceArgs* args, OperandVisitor* visitor);

// A call with its arguments, independent of their type.
class OpCall {
 public:
  virtual ~OpCall() = default;
  virtual std::string_view entry() const = 0;  // name of the entry: "linear.Forward"
  virtual void VisitOperands(OperandVisitor* visitor) = 0;
  virtual std::unique_ptr<OpCall> Clone() const = 0;
  virtual void Run(Backend& backend, Stream& stream) const = 0;
};

// The implementation for one argument struct; `Args` is one of the above.
template <class Args>
class OpCallOf final : public OpCall {
 public:
  using Runner = void(Backend& backend, Stream& stream, const Args& args);
  // `entry` must have static lifetime (a literal).
  OpCallOf(std::string_view entry, const Args& args, Runner* run)
      : entry_(entry), args_(args), run_(run) {}
  std::string_view entry() const override { return entry_; }
  void VisitOperands(OperandVisitor* visitor) override { Visit(&args_, visitor); }
  std::unique_ptr<OpCall> Clone() const override { return std::make_unique<OpCallOf>(*this); }
  void Run(Backend& backend, Stream& stream) const override { run_(backend, stream, args_); }

 private:
  std::string_view entry_;
  Args args_;
  Runner* run_;
};

}  // namespace mt::kernels::replay
