// Of each tensor two pages count: fine-tuning changes tensors as wholes, and every rank reads them.
#include "worker/hf/parameter_source.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "common/base/check.h"

namespace mt::hf {
namespace {

constexpr int64_t kEndBytes = 4096;

}  // namespace

void ParameterSource::CheckInside(const std::string& parameter, const checkpoint::Box& box) const {
  const auto it = parameters().find(parameter);
  CHECK(it != parameters().end()) << "no parameter " << parameter;
  const Shape& shape = it->second;
  CHECK_EQ(box.offset.size(), shape.size()) << parameter;
  CHECK_EQ(box.shape.size(), shape.size()) << parameter;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    CHECK_GE(box.offset[dim], 0) << parameter << ", dim " << dim;
    CHECK_GE(box.shape[dim], 0) << parameter << ", dim " << dim;
    CHECK_LE(box.offset[dim] + box.shape[dim], shape[dim]) << parameter << ", dim " << dim;
  }
}

Status ParameterSource::AddEnds(int64_t bytes, const ReadBytes& read, base::Hash128* digest) {
  std::vector<char> part;
  for (const int64_t begin : {int64_t{0}, std::max(kEndBytes, bytes - kEndBytes)}) {
    const int64_t count = std::min(kEndBytes, bytes - begin);
    if (count <= 0) continue;
    part.resize(static_cast<size_t>(count));
    RETURN_IF_ERROR(read(begin, std::as_writable_bytes(std::span(part))));
    digest->Add({part.data(), part.size()});
  }
  return OkStatus();
}

}  // namespace mt::hf
