// What datatrove keeps beside a .ds file, which is ids alone: `.ds.metadata` (a line
// "tokenizer|bytes of an id", a line with the number of ids) and `.ds.index` (u64 ends of
// documents, in ids).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "worker/data/mapped_file.h"
#include "worker/data/token_type.h"

namespace mt::data {

// Where documents end, in ids from the start of the file; equal ends are empty documents. Mapped.
class DocumentEnds {
 public:
  // nullopt where there is no such file. kDataLoss for ends that fall, or a size that is no whole
  // number of them.
  static StatusOr<std::optional<DocumentEnds>> Open(const std::string& path);

  int64_t count() const { return static_cast<int64_t>(file_.size() / sizeof(uint64_t)); }
  // 0 <= document < count(); not checked.
  uint64_t at(int64_t document) const;
  // 0 without documents.
  uint64_t last() const { return count() == 0 ? 0 : at(count() - 1); }
  // As MappedFile's: to be asked before what was read is believed.
  Status CheckWhole() const { return file_.CheckWhole(path_); }

 private:
  std::string path_;
  MappedFile file_;
};

// What is known of a .ds file.
struct DatatroveFacts {
  TokenType type = TokenType::kU16;  // kI32 for u32
  std::optional<DocumentEnds> ends{};
  // The ends are borders of the chunks that were shuffled as well.
  bool ends_are_cuts = false;
  bool has_loss_mask = false;
};

bool IsDatatrove(std::string_view path);
// `bytes`: of the .ds file; `asked`: what the caller was told its ids are. kDataLoss where sizes
// and what is said of them contradict each other; kInvalidArgument where nothing says the width,
// `asked` says another one, or there are ids of other sizes.
StatusOr<DatatroveFacts> ReadDatatrove(const std::string& path, int64_t bytes,
                                       std::optional<TokenType> asked);

}  // namespace mt::data
