// First the sizes, then the texts, each in a place as large as the largest.
#include "worker/comm/copies/exchange.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace mt::comm {

using kernels::DType;

StatusOr<std::vector<std::string>> Exchange(ProcessGroup& group, kernels::Stream& stream,
                                            const std::string& mine) {
  const auto members = static_cast<size_t>(group.size());
  const auto size = static_cast<int64_t>(mine.size());
  std::vector<int64_t> sizes(members);
  RETURN_IF_ERROR(group.AllGather(stream, &size, sizes.data(), 1, DType::kI64));
  const auto largest = static_cast<size_t>(*std::max_element(sizes.begin(), sizes.end()));
  std::string padded = mine;
  padded.resize(largest);
  std::string all(largest * members, '\0');
  RETURN_IF_ERROR(group.AllGather(stream, padded.data(), all.data(), static_cast<int64_t>(largest),
                                  DType::kU8));
  std::vector<std::string> texts;
  texts.reserve(members);
  for (size_t i = 0; i < members; ++i)
    texts.push_back(all.substr(i * largest, static_cast<size_t>(sizes[i])));
  return texts;
}

std::string Join(const std::vector<std::string>& texts) {
  std::string joined;
  for (const std::string& text : texts) {
    const auto size = static_cast<int64_t>(text.size());
    joined.append(reinterpret_cast<const char*>(&size), sizeof(size));
    joined.append(text);
  }
  return joined;
}

std::vector<std::string> Split(const std::string& joined) {
  std::vector<std::string> texts;
  size_t at = 0;
  while (at < joined.size()) {
    int64_t size = 0;
    if (joined.size() - at < sizeof(size)) return {};
    std::memcpy(&size, joined.data() + at, sizeof(size));
    at += sizeof(size);
    if (size < 0 || joined.size() - at < static_cast<size_t>(size)) return {};
    texts.push_back(joined.substr(at, static_cast<size_t>(size)));
    at += static_cast<size_t>(size);
  }
  return texts;
}

}  // namespace mt::comm
