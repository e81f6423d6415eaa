// Prints which samples a job's data section gives, for tests/golden/oracle/test_data_order.py:
// reads one JSON object a line and answers with one line each, splits by their names:
//   {"train": [samples, digest], "valid": [...], "whole_valid": [...], "consumed": [...]}
// or {"error": "..."}. A digest is XXH3-128 of the tokens (i32 [S + 1]), weights (f32 [S]) and
// positions (i32 [S]) of sample after sample.
#include <iostream>
#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "common/base/ids.h"
#include "worker/data/data_source.h"
#include "worker/data/microbatch.h"

namespace mt::data {
namespace {

using Json = nlohmann::json;

DataPath PathOf(const Json& members) {
  DataPath path;
  for (const Json& member : members) {
    DataMember& added = path.emplace_back(DataMember{.prefix = member.at(0)});
    if (!member.at(1).is_null()) added.weight = member.at(1).get<double>();
  }
  return path;
}

DataSourceArgs ArgsOf(const Json& json) {
  DataSourceArgs args;
  args.path = PathOf(json.value("path", Json::array()));
  args.train = PathOf(json.value("train", Json::array()));
  args.valid = PathOf(json.value("valid", Json::array()));
  args.split = json.value("split", args.split);
  if (json.value("split_by", "documents") == "tokens") args.split_by = SplitBy::kTokens;
  args.seq_length = json.at("seq_length");
  args.vocab_size = json.at("vocab_size");
  args.seed = json.at("seed");
  args.train_samples = json.at("train_samples");
  args.valid_samples = json.at("valid_samples");
  args.whole_valid = json.at("whole_valid");
  if (json.contains("no_loss_behind")) args.no_loss_behind = json.at("no_loss_behind").get<int>();
  if (json.contains("positions_restart_behind"))
    args.positions_restart_behind = json.at("positions_restart_behind").get<int>();
  return args;
}

// The first `samples` of the data set, all where that is 0.
Json Digest(const Dataset& data, int64_t samples) {
  std::string bytes;
  std::vector<int32_t> tokens(static_cast<size_t>(data.seq_length()) + 1);
  std::vector<float> weights(static_cast<size_t>(data.seq_length()));
  Microbatch batch = EmptyMicrobatch(data.seq_length(), 1, {.positions = true});
  const int64_t count = samples == 0 ? data.num_samples() : samples;
  for (int64_t i = 0; i < count; ++i) {
    const Status status = data.Read(i, tokens, weights);
    if (!status.ok()) return base::Message(status);
    bytes.append(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(int32_t));
    bytes.append(reinterpret_cast<const char*>(weights.data()), weights.size() * sizeof(float));
    PlacePositions(std::span(tokens).first(weights.size()), data.PositionsRestartBehind(i), 0,
                   &batch);
    bytes.append(reinterpret_cast<const char*>(batch.positions.data()),
                 batch.positions.size() * sizeof(int32_t));
  }
  return {data.num_samples(), base::Hash128Hex(bytes)};
}

Json Answer(const Json& json) {
  const DataSourceArgs args = ArgsOf(json);
  const auto source = OpenDataSource(args);
  if (!source.ok()) return {{"error", base::Message(source.status())}};
  Json answer = {{"train", Digest(*source->train, args.train_samples)},
                 {"consumed", source->train->ConsumedByMember(args.train_samples)}};
  if (source->valid != nullptr) answer["valid"] = Digest(*source->valid, args.valid_samples);
  if (source->whole_valid != nullptr) answer["whole_valid"] = Digest(*source->whole_valid, 0);
  return answer;
}

}  // namespace
}  // namespace mt::data

int main() {
  for (std::string line; std::getline(std::cin, line);)
    std::cout << mt::data::Answer(nlohmann::json::parse(line)).dump() << "\n";
  return 0;
}
