// The tokenizer of a run: that of the job, or of the records beside its data sets, which must
// agree. It decides the vocabulary of a job that leaves it open.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "common/base/status.h"
#include "worker/data/tokenizer/record.h"
#include "worker/data/tokenizer/tokenizer.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::train {

// The record of the job's tokenizer, or else that of its data; nullopt where the job names none and
// no data set has a record, or the data are mock. Reads files below data_root. kFailedPrecondition
// where the data were made by another tokenizer than the job's, by several, or, with
// data.eod_mask_loss or data.reset_positions, by one with several end-of-document tokens (else
// SettleVocabulary warns, and the record has that of the first data set); else errors of the files.
StatusOr<std::optional<data::TokenizerRecord>> FindJobTokenizer(const std::string& data_root,
                                                                const megatrain::v1::JobSpec& job);

// The tokenizer of a run for texts: of the files that the job names or that lie beside its data;
// ids (null) where nothing tells one. `record`: FindJobTokenizer's. kNotFound where its files are
// neither named nor there, kFailedPrecondition where they have another digest; else errors of the
// files.
StatusOr<std::unique_ptr<data::Tokenizer>> OpenJobTokenizer(
    const std::string& data_root, const megatrain::v1::JobSpec& job,
    const std::optional<data::TokenizerRecord>& record);

// Sets model.vocab_size where a completed job leaves it open: from FindJobTokenizer, else from the
// preset. Warns where the data end documents in several ways. kInvalidArgument where nothing tells
// it, or the job's has no room for the tokenizer's.
Status SettleVocabulary(const std::string& data_root, megatrain::v1::JobSpec* job);

// Copies the files of the run's tokenizer (`record`, FindJobTokenizer's) to a folder of the
// directory of its checkpoints (data::KeepTokenizer), so that they can be read as text anywhere:
// the job's files, or those that lie beside its data. Where there are none, or they cannot be
// copied, that is logged: nothing of the run depends on them. Blocks.
void KeepBesideCheckpoints(const std::string& data_root, const megatrain::v1::JobSpec& job,
                           const data::TokenizerRecord& record, const std::string& directory);

}  // namespace mt::train
