// Rank 0 alone reads what is asked, and tells all ranks the tokens, or why not: what one tokenizer
// makes of a text, all then have. Its clock decides when the time is over.
#include "worker/train/samples/asked_texts.h"

#include <algorithm>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "worker/checkpoint/exchange.h"
#include "worker/comm/process_group.h"
#include "worker/train/samples/text_turn.h"

namespace mt::train {
namespace {

using nlohmann::json;

std::string PackRequest(const StatusOr<decode::GenerateRequest>& request) {
  json packed;
  if (!request.ok()) {
    packed["refused"] = std::string(base::Message(request.status()));
  } else {
    const decode::SamplingConfig& sampling = request->sampling;
    packed = {{"prompts", request->prompts},
              {"samples", request->samples},
              {"tokens", request->tokens},
              {"temperature", sampling.temperature},
              {"top_k", sampling.top_k},
              {"top_p", sampling.top_p},
              {"penalty", sampling.repetition_penalty},
              {"seed", sampling.seed},
              {"stops", request->stops}};
  }
  return packed.dump(-1, ' ', false, json::error_handler_t::replace);
}

StatusOr<decode::GenerateRequest> UnpackRequest(const std::string& text) {
  const json packed = json::parse(text);
  if (packed.contains("refused"))
    return base::InvalidArgument("{}", packed.at("refused").get<std::string>());
  decode::GenerateRequest request;
  packed.at("prompts").get_to(request.prompts);
  packed.at("samples").get_to(request.samples);
  packed.at("tokens").get_to(request.tokens);
  packed.at("temperature").get_to(request.sampling.temperature);
  packed.at("top_k").get_to(request.sampling.top_k);
  packed.at("top_p").get_to(request.sampling.top_p);
  packed.at("penalty").get_to(request.sampling.repetition_penalty);
  packed.at("seed").get_to(request.sampling.seed);
  packed.at("stops").get_to(request.stops);
  return request;
}

std::vector<DecodedText> TextsOf(const decode::GenerateReport& report) {
  std::vector<DecodedText> texts;
  texts.reserve(report.continuations.size());
  for (const decode::Continuation& one : report.continuations) {
    KeptText kept = KeptTextOf(one);
    // Nobody else interrupts them.
    if (one.finish == decode::Finish::kInterrupted) kept.finish = "time";
    texts.push_back({.prompt = one.prompt,
                     .sample = one.sample,
                     .text = std::move(kept.text),
                     .finish = std::move(kept.finish)});
  }
  return texts;
}

}  // namespace

StatusOr<decode::GenerateRequest> AskedTexts::Prepare(const TextRequest& asked) const {
  RETURN_IF_ERROR(decode::CheckSampling(asked.sampling));
  const std::vector<std::string> prompts =
      asked.prompts.empty() ? std::vector<std::string>{""} : asked.prompts;
  if (asked.samples < 1 || asked.samples > control::kMostDecodedTexts / std::ssize(prompts)) {
    return base::InvalidArgument("{} samples of {} prompts; a job that trains writes 1 to {} texts",
                                 asked.samples, prompts.size(), control::kMostDecodedTexts);
  }
  if (asked.tokens < 0) return base::InvalidArgument("{} tokens of a text", asked.tokens);
  if (std::ranges::any_of(asked.stops, &std::string::empty))
    return base::InvalidArgument("a stop string is empty");
  decode::GenerateRequest request{.samples = asked.samples,
                                  .tokens = asked.tokens,
                                  .sampling = asked.sampling,
                                  .stops = asked.stops};
  const int64_t positions = args_.writer->positions();
  for (const std::string& prompt : prompts) {
    std::vector<int32_t>& ids = request.prompts.emplace_back();
    RETURN_IF_ERROR(args_.writer->Encode(prompt, request.prompts.size(), &ids));
    if (std::ssize(ids) <= positions) continue;
    return base::InvalidArgument(
        "prompt {} has {} tokens, and the job has planned memory for texts of {} "
        "(training.eval.decode_tokens): shorten it, or have a checkpoint read without --in-job",
        request.prompts.size(), ids.size(), positions);
  }
  RETURN_IF_ERROR(decode::CheckPrompts(request, positions, args_.writer->vocab()));
  return request;
}

Status AskedTexts::WriteHere(const decode::GenerateRequest& request,
                             const std::function<void()>& on_token,
                             StatusOr<std::vector<DecodedText>>* texts) {
  const base::MonotonicTime until = args_.clock->Now() + args_.limit;
  TextTurn turn({.group = args_.groups->world(),
                 .engine = args_.engine,
                 .on_token = on_token,
                 .is_late = [&] { return args_.clock->Now() >= until; }});
  StatusOr<decode::GenerateReport> report = decode::GenerateReport();
  const Status written = args_.writer->Write(request, turn.hooks(), &report);
  RETURN_IF_ERROR(turn.status());
  RETURN_IF_ERROR(written);
  if (report.ok()) {
    *texts = TextsOf(*report);
  } else {
    *texts = report.status();
  }
  return turn.End();
}

Status AskedTexts::Write(const std::optional<TextRequest>& asked,
                         const std::function<void()>& on_token,
                         StatusOr<std::vector<DecodedText>>* texts) {
  *texts = std::vector<DecodedText>();
  // A rank that waits does so for a prompt, or for a few tokens, that others compute.
  const comm::OpTimeoutScope patience(args_.groups->world(), args_.patience);
  checkpoint::Exchange exchange(args_.groups->world(), &args_.engine->stream());
  std::string mine;
  if (asked.has_value()) mine = PackRequest(Prepare(*asked));
  ASSIGN_OR_RETURN(const std::string text, exchange.Broadcast(mine, /*root=*/0));
  const StatusOr<decode::GenerateRequest> request = UnpackRequest(text);
  if (!request.ok()) {
    *texts = request.status();
    return OkStatus();
  }
  // The weights are whole then, too.
  RETURN_IF_ERROR(args_.engine->Synchronize());
  if (args_.writer != nullptr) return WriteHere(*request, on_token, texts);
  TextTurn turn({.group = args_.groups->world(), .engine = args_.engine, .on_token = on_token});
  return turn.Wait();
}

}  // namespace mt::train
