// What the verbs of `mtctl data` share: token files on this machine, without a coordinator.
#pragma once

#include <string>
#include <vector>

#include "client/commands/commands.h"
#include "client/session/session.h"
#include "common/base/status.h"
#include "worker/data/token_type.h"

namespace mt::data {
struct WrittenDataset;
}  // namespace mt::data

namespace mt::client {

// "u16", as messages and `-o json` name it.
std::string TypeName(data::TokenType type);
// As Complain, with the code for files where the code would blame the server: all that fails here
// is a disk.
ExitCode ComplainOfFiles(const Status& status);
// Prints data sets that were written: a line each, or one object each; their notes on stderr.
ExitCode ShowWritten(const std::vector<data::WrittenDataset>& written,
                     const GlobalOptions& options);

// Each adds one verb below `mtctl data`; context.app is that.
void AddDataPrepare(const CommandContext& context);
void AddDataInspect(const CommandContext& context);
void AddDataVerify(const CommandContext& context);
void AddDataMerge(const CommandContext& context);
void AddDataSplit(const CommandContext& context);
void AddDataImport(const CommandContext& context);

}  // namespace mt::client
