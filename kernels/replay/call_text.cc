// Both texts are made of the same parts, which a visitor collects.
#include "kernels/replay/call_text.h"

#include <vector>

#include <fmt/format.h>

namespace mt::kernels::replay {
namespace {

// Collects the parts of a signature and of a label.
class Describer final : public OperandVisitor {
 public:
  struct Part {
    std::string text;   // "x[32768,768]"
    std::string dtype;  // "bf16"
    bool is_matrix = false;
  };

  void Operand(std::string_view name, Tensor* tensor, Access /*access*/) override {
    std::string shape;
    for (int i = 0; i < tensor->shape.rank(); ++i)
      shape += fmt::format("{}{}", i == 0 ? "" : ",", tensor->shape[i]);
    parts_.push_back({.text = fmt::format("{}[{}]", name, shape),
                      .dtype = std::string(Name(tensor->dtype)),
                      .is_matrix = tensor->shape.rank() >= 2});
  }
  void View(std::string_view name, const Heads& heads, Access /*access*/) override {
    const AttentionShape& shape = *heads.shape;
    const HeadView* const view = heads.view;
    parts_.push_back(
        {.text = fmt::format("{}[{},{},{},{}]", name, shape.s, shape.b, heads.heads, shape.d),
         .dtype = fmt::format("{} by {} {} {}", Name(shape.dtype), view->s_stride, view->b_stride,
                              view->head_stride),
         .is_matrix = true});
  }
  void Block(std::string_view /*name*/, void** /*data*/, int64_t /*bytes*/,
             Access /*access*/) override {}
  void Mark(std::string_view text) override { marks_ += fmt::format(" {}", text); }

  std::string Signature() const {
    std::string out;
    for (const Part& part : parts_) out += fmt::format(" {} {}", part.text, part.dtype);
    return out + marks_;
  }
  std::string Label() const {
    constexpr size_t kShown = 3;
    std::string matrices, others;
    size_t shown = 0, rest = 0;
    for (const Part& part : parts_) {
      if (part.is_matrix && shown < kShown) {
        matrices += " " + part.text;
        ++shown;
      } else if (!part.is_matrix && rest < kShown) {
        others += " " + part.text;
        ++rest;
      }
    }
    return (matrices.empty() ? others : matrices) + marks_;
  }

 private:
  std::vector<Part> parts_;
  std::string marks_;
};

Describer Described(const OpCall& call) {
  Describer describer;
  call.Clone()->VisitOperands(&describer);
  return describer;
}

}  // namespace

std::string SignatureOf(const OpCall& call) {
  return std::string(call.entry()) + Described(call).Signature();
}

std::string LabelOf(const OpCall& call) {
  return std::string(call.entry()) + Described(call).Label();
}

}  // namespace mt::kernels::replay
