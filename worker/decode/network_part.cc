// Messages of a chunk go by the edge of its number, on the side that receives them.
#include "worker/decode/network_part.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"

namespace mt::decode {

using kernels::Partials;
using kernels::Stream;
using kernels::Tensor;

PartExchange::PartExchange(const NetworkPart& part) : part_(part) {
  CHECK_GT(part_.stages, 0);
  CHECK(part_.tensor == nullptr || !part_.tensor->sequence_parallel());
  if (part_.stages == 1) return;
  CHECK(part_.ranks != nullptr && !part_.chunks.empty());
  CHECK_EQ(part_.ranks->size(), part_.stages * tensor_ranks());
}

int PartExchange::MemberOf(int stage) const {
  const int tensor_rank = part_.tensor == nullptr ? 0 : part_.tensor->rank();
  return stage * tensor_ranks() + tensor_rank;
}

Partials PartExchange::Sum(Stream& stream, const Tensor& partial) {
  if (tensor_ranks() == 1) return Partials(partial);
  return part_.tensor->Reduce(stream, partial, partial);
}

void PartExchange::Receive(Stream& stream, const layout::ModelChunk& chunk,
                           const Tensor& residual) {
  if (!status_.ok()) return;
  const int before = (chunk.stage + part_.stages - 1) % part_.stages;
  status_ = part_.ranks->Recv(stream, residual.data, residual.NumElements(), residual.dtype,
                              MemberOf(before), chunk.chunk);
}

void PartExchange::Send(Stream& stream, const layout::ModelChunk& chunk, const Tensor& residual) {
  if (!status_.ok()) return;
  const bool wraps = chunk.stage + 1 == part_.stages;
  status_ = part_.ranks->Send(stream, residual.data, residual.NumElements(), residual.dtype,
                              MemberOf(wraps ? 0 : chunk.stage + 1), chunk.chunk + (wraps ? 1 : 0));
}

void PartExchange::ShareLogits(Stream& stream, kernels::Device& device, const Tensor& own,
                               const Tensor& all) {
  if (own) {
    if (tensor_ranks() > 1) {
      part_.tensor->AllGather(stream, own, all);
    } else {
      device.Copy(stream, all.data, own.data, own.Bytes());
    }
  }
  if (part_.stages == 1 || !status().ok()) return;
  status_ = part_.ranks->Broadcast(stream, all.data, all.NumElements(), all.dtype,
                                   (part_.stages - 1) * tensor_ranks());
}

Status PartExchange::status() const {
  if (!status_.ok() || part_.tensor == nullptr) return status_;
  return part_.tensor->status();
}

void JoinLogits(const Tensor& all, const Tensor& rows) {
  const int64_t count = rows.shape[0], vocab = rows.shape[1], part = all.shape[1];
  CHECK(all.dtype == rows.dtype);
  CHECK(all.shape[0] % count == 0 && all.shape[0] / count * part >= vocab);
  const int64_t element = SizeOf(rows.dtype);
  for (int64_t row = 0; row < count; ++row) {
    char* const to = static_cast<char*>(rows.data) + row * vocab * element;
    for (int64_t begin = 0; begin < vocab; begin += part) {
      const int64_t from = begin / part * count + row;
      std::memcpy(to + begin * element, all.Rows(from, 1).data,
                  static_cast<size_t>(std::min(part, vocab - begin) * element));
    }
  }
}

}  // namespace mt::decode
