// Token files of other trainers (shard.h) made into an indexed data set: those of llm.c, nanoGPT
// and datatrove.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/data/token_files/rearrange.h"
#include "worker/data/token_type.h"
#include "worker/data/tokenizer.h"
#include "worker/data/tokenizer/record.h"

namespace mt::data {

struct ImportArgs {
  std::vector<std::string> inputs{};  // in this order; one width of ids
  std::string output{};
  // Of files that do not say it: kU16, or kI32 for u32; u16 where it is not given.
  std::optional<TokenType> raw_type{};
  // The id that stands between documents; below 0: the tokenizer's, of files that have no index of
  // documents, and without one each shard is one document.
  int64_t eod = -1;
  // It begins a document instead of ending it; where not given, by what made the shard: llm.c's
  // begins them.
  std::optional<bool> eod_begins{};
  int64_t vocab_size = 0;  // ids must be below; 0: the tokenizer's, else not checked
  // What made the ids: left beside the data, with `eod` where that is given.
  std::optional<TokenizerRecord> tokenizer{};
  std::optional<TokenizerConfig> tokenizer_files{};  // kept beside the data
  bool overwrite = false;
  CopyProgress progress{};
};

// Where a file has an index of documents they end there, and at `eod` too where that is given. Else
// a document goes on from shard to shard where an EOD divides them. Shards without ids are left
// out, with a note. Blocks until done; an error leaves no output, and names file, byte and id.
// kInvalidArgument for widths that differ, ids outside of the vocabulary and an EOD that the
// tokenizer does not have; kAlreadyExists; else the errors of OpenShard.
StatusOr<WrittenDataset> ImportShards(const ImportArgs& args);

}  // namespace mt::data
