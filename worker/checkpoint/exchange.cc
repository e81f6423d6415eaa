// Texts are padded to the longest and all-gathered as bytes. Agreement exchanges status codes;
// messages follow only after a failure.
#include "worker/checkpoint/exchange.h"

#include <algorithm>
#include <cstring>

#include "kernels/core/dtype.h"

namespace mt::checkpoint {

StatusOr<std::vector<std::string>> Exchange::AllGather(const std::string& text) {
  if (group_ == nullptr) return std::vector<std::string>{text};
  const auto n = static_cast<size_t>(size());
  const auto mine = static_cast<int64_t>(text.size());
  std::vector<int64_t> lengths(n);
  RETURN_IF_ERROR(group_->AllGather(*stream_, &mine, lengths.data(), 1, kernels::DType::kI64));
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  std::string padded = text;
  padded.resize(static_cast<size_t>(longest), '\0');
  std::string all(n * static_cast<size_t>(longest), '\0');
  RETURN_IF_ERROR(
      group_->AllGather(*stream_, padded.data(), all.data(), longest, kernels::DType::kU8));
  std::vector<std::string> out;
  for (size_t r = 0; r < n; ++r) {
    out.push_back(all.substr(r * static_cast<size_t>(longest), static_cast<size_t>(lengths[r])));
  }
  return out;
}

StatusOr<std::string> Exchange::Broadcast(const std::string& text, int root) {
  if (group_ == nullptr) return text;
  auto bytes = static_cast<int64_t>(text.size());
  RETURN_IF_ERROR(group_->Broadcast(*stream_, &bytes, 1, kernels::DType::kI64, root));
  std::string out = rank() == root ? text : std::string();
  out.resize(static_cast<size_t>(bytes));
  RETURN_IF_ERROR(group_->Broadcast(*stream_, out.data(), bytes, kernels::DType::kU8, root));
  return out;
}

Status Exchange::Agree(const Status& mine) {
  if (group_ == nullptr) return mine;
  const auto n = static_cast<size_t>(size());
  const auto code = static_cast<int32_t>(mine.code());
  std::vector<int32_t> codes(n);
  RETURN_IF_ERROR(group_->AllGather(*stream_, &code, codes.data(), 1, kernels::DType::kI32));
  const auto bad = std::find_if(codes.begin(), codes.end(), [](int32_t c) { return c != 0; });
  if (bad == codes.end()) return OkStatus();
  // Only after a failure: exchange the messages.
  ASSIGN_OR_RETURN(const std::vector<std::string> texts, AllGather(base::Message(mine)));
  const auto r = static_cast<size_t>(bad - codes.begin());
  return base::Error(static_cast<absl::StatusCode>(*bad), "rank {}: {}", r, texts[r]);
}

}  // namespace mt::checkpoint
