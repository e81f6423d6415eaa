// `mtctl data`, and what its verbs share.
#include "client/commands/data.h"

#include <cstdio>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "worker/data/token_files/rearrange.h"

namespace mt::client {

std::string TypeName(data::TokenType type) { return std::string(data::Name(type)); }

ExitCode ComplainOfFiles(const Status& status) {
  const ExitCode code = Complain(status);
  return code == kExitServer || code == kExitConnection ? kExitIo : code;
}

ExitCode ShowWritten(const std::vector<data::WrittenDataset>& written,
                     const GlobalOptions& options) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const data::WrittenDataset& one : written) {
    for (const std::string& note : one.notes)
      std::fprintf(stderr, "mtctl: note: %s\n", note.c_str());
    if (!IsStructured(options.output)) {
      std::printf("%s.{bin,idx}: %lld documents, %lld tokens (%s)\n", one.prefix.c_str(),
                  static_cast<long long>(one.documents), static_cast<long long>(one.tokens),
                  TypeName(one.token_type).c_str());
    }
    out.push_back({{"prefix", one.prefix},
                   {"documents", one.documents},
                   {"sequences", one.sequences},
                   {"tokens", one.tokens},
                   {"token_type", TypeName(one.token_type)}});
  }
  if (IsStructured(options.output)) {
    const nlohmann::ordered_json tree = {{"datasets", out}};
    std::fputs(RenderTree(tree, options.output, "datasets").c_str(), stdout);
  }
  return kExitOk;
}

void AddData(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand("data", "Make, check and rearrange data sets")
                          ->require_subcommand(1);
  CommandContext below = context;
  below.app = command;
  AddDataPrepare(below);
  AddDataInspect(below);
  AddDataVerify(below);
  AddDataMerge(below);
  AddDataSplit(below);
  AddDataImport(below);
}

}  // namespace mt::client
