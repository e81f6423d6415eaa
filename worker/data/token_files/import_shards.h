// Token shards of other trainers made into an indexed data set: llm.c's (a header of 256 i32: magic
// 20240520 version 1 with u16 ids, magic 20240801 version 7 with u32 ids) and nanoGPT's (ids
// without a header). The header, not the name, tells which.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/data/token_files/rearrange.h"
#include "worker/data/token_type.h"

namespace mt::data {

struct ImportArgs {
  std::vector<std::string> inputs{};  // in this order; one width of ids
  std::string output{};
  // Of files without a header: kU16, or kI32 for u32.
  TokenType raw_type = TokenType::kU16;
  // The id that stands between documents; below 0: each shard is one document.
  int64_t eod = -1;
  // It begins a document, as in llm.c's shards, instead of ending it, as in nanoGPT's.
  bool eod_begins = false;
  int64_t vocab_size = 0;  // ids must be below; 0: not checked
  bool overwrite = false;
  CopyProgress progress{};
};

// A document goes on from shard to shard where an EOD divides them. Blocks until done; an error
// leaves no output, and names file, byte and id. kInvalidArgument for a header of another version,
// widths that differ and ids outside of the vocabulary; kDataLoss for a shard that is shorter than
// its header says or ends within an id; kAlreadyExists.
StatusOr<WrittenDataset> ImportShards(const ImportArgs& args);

}  // namespace mt::data
