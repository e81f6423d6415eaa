// A token file of another trainer, and what it says of itself: llm.c's by its header (256 i32:
// magic 20240520 version 1 with u16 ids, magic 20240801 version 7 with u32 ids), datatrove's by its
// name (.ds) and the files beside it, nanoGPT's ids without a header. Chunks of litdata, which look
// like the last, are refused.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "worker/data/mapped_file.h"
#include "worker/data/token_files/datatrove.h"
#include "worker/data/token_type.h"

namespace mt::data {

struct Shard {
  MappedFile file{};
  std::string_view ids{};            // in `file`
  size_t begin = 0;                  // of the ids in the file
  TokenType type = TokenType::kU16;  // or kI32, for u32
  // Its makers put the end-of-document id before a document, not behind it.
  bool eod_begins = false;
  std::optional<DatatroveFacts> datatrove{};

  // Null where nothing but ids says it.
  const DocumentEnds* ends() const {
    return datatrove && datatrove->ends ? &*datatrove->ends : nullptr;
  }
};

// `raw_type`: what the caller was told of files without a header; u16 without it. Errors name the
// file: kInvalidArgument for a header of another version, litdata's chunks, what lies beside a .ds,
// and those of ReadDatatrove; kDataLoss for one that is shorter than its header says or ends within
// an id.
StatusOr<Shard> OpenShard(const std::string& path, std::optional<TokenType> raw_type);

}  // namespace mt::data
