// Collects the memory of an op by visiting its operands.
#include "kernels/async/async_call.h"

#include <utility>

namespace mt::kernels::async {
namespace {

class UseCollector final : public replay::OperandVisitor {
 public:
  void Operand(std::string_view name, Tensor* tensor, Access access) override {
    Add(name, tensor->data, tensor->Bytes(), access);
  }
  void View(std::string_view name, const Heads& heads, Access access) override {
    Add(name, heads.view->data, heads.Bytes(), access);
  }
  void Block(std::string_view name, void** data, int64_t bytes, Access access) override {
    Add(name, *data, bytes, access);
  }
  void Mark(std::string_view /*text*/) override {}

  std::vector<MemoryUse> Take() { return std::move(uses_); }

 private:
  void Add(std::string_view name, const void* data, int64_t bytes, Access access) {
    if (bytes <= 0) return;
    uses_.push_back({.name = std::string(name), .data = data, .bytes = bytes, .access = access});
  }

  std::vector<MemoryUse> uses_;
};

}  // namespace

std::vector<MemoryUse> UsesOf(const replay::OpCall& call) {
  UseCollector collector;
  call.Clone()->VisitOperands(&collector);
  return collector.Take();
}

}  // namespace mt::kernels::async
