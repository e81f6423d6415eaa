// One small JSON object.
#include "worker/checkpoint/format/evaluation.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "worker/checkpoint/format/json_numbers.h"
#include "worker/checkpoint/format/json_text.h"

namespace mt::checkpoint {
namespace {

// Throws where it is damaged.
Measure MeasureIn(const nlohmann::json& in) {
  if (!in.contains("measure")) return {};
  const nlohmann::json& measure = in.at("measure");
  return {.kind = measure.at("kind").get<std::string>(),
          .samples = Integer(measure.at("samples")),
          .data = measure.at("data").get<std::string>()};
}

std::optional<double> BitsIn(const nlohmann::json& in) {
  if (!in.contains("bits_per_byte")) return std::nullopt;
  return ParseReal(in.at("bits_per_byte"));
}

}  // namespace

std::string ToJson(const Evaluation& evaluation) {
  nlohmann::json out = {{"format", "megatrain-eval"},          {"version", kEvaluationVersion},
                        {"split", evaluation.split},           {"step", evaluation.step},
                        {"loss", RealToJson(evaluation.loss)}, {"tokens", evaluation.tokens}};
  const Measure& measure = evaluation.measure;
  if (!measure.kind.empty()) {
    out["measure"] = {{"kind", measure.kind}, {"samples", measure.samples}, {"data", measure.data}};
  }
  if (evaluation.bits_per_byte) out["bits_per_byte"] = RealToJson(*evaluation.bits_per_byte);
  return out.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

StatusOr<Evaluation> ParseEvaluation(std::string_view text) {
  const nlohmann::json in = ParseJson(text);
  if (!in.is_object() || in.value("format", nlohmann::json()) != "megatrain-eval")
    return base::DataLoss("not an evaluation: no JSON object with format \"megatrain-eval\"");
  try {
    const int64_t version = Integer(in.at("version"));
    if (version > kEvaluationVersion) {
      return base::FailedPrecondition(
          "the evaluation has format version {}, this program reads up to {}: use a newer "
          "Megatrain",
          version, kEvaluationVersion);
    }
    return Evaluation{.split = in.at("split").get<std::string>(),
                      .step = Integer(in.at("step")),
                      .loss = ParseReal(in.at("loss")),
                      .tokens = Integer(in.at("tokens")),
                      .measure = MeasureIn(in),
                      .bits_per_byte = BitsIn(in)};
  } catch (const nlohmann::json::exception& error) {
    return base::DataLoss("damaged evaluation: {}", error.what());
  }
}

Status WriteEvaluation(const std::string& folder, const Evaluation& evaluation) {
  return base::WriteFileAtomic(base::JoinPath(folder, kEvaluationName), ToJson(evaluation));
}

StatusOr<std::optional<Evaluation>> ReadEvaluation(const std::string& folder) {
  const std::string path = base::JoinPath(folder, kEvaluationName);
  const auto text = base::ReadFile(path);
  if (absl::IsNotFound(text.status())) return std::optional<Evaluation>();
  RETURN_IF_ERROR(text.status());
  auto evaluation = ParseEvaluation(*text);
  if (!evaluation.ok()) return base::Annotate(evaluation.status(), path);
  return std::optional<Evaluation>(*std::move(evaluation));
}

}  // namespace mt::checkpoint
