// A stage hands its pieces to the next one.
#include "worker/data/tokenizer/splitter.h"

namespace mt::data {

StatusOr<Splitter> Splitter::Create(const std::vector<std::string>& patterns) {
  Splitter splitter;
  for (const std::string& pattern : patterns) {
    Stage& stage = splitter.stages_.emplace_back();
    stage.fast = FindFastSplitter(pattern);
    if (stage.fast != nullptr) continue;
    ASSIGN_OR_RETURN(RegexSplitter regex, RegexSplitter::Create(pattern));
    stage.regex.push_back(std::move(regex));
  }
  return splitter;
}

StatusOr<Splitter> Splitter::CreateWithoutFast(const std::vector<std::string>& patterns) {
  Splitter splitter;
  for (const std::string& pattern : patterns) {
    ASSIGN_OR_RETURN(RegexSplitter regex, RegexSplitter::Create(pattern));
    splitter.stages_.emplace_back().regex.push_back(std::move(regex));
  }
  return splitter;
}

Status Splitter::SplitBy(size_t stage, std::string_view text,
                         const RegexSplitter::Piece& piece) const {
  if (text.empty()) return OkStatus();
  if (stage == stages_.size()) return piece(text);
  const RegexSplitter::Piece next = [&](std::string_view part) {
    return SplitBy(stage + 1, part, piece);
  };
  const Stage& now = stages_[stage];
  if (now.fast == nullptr) return now.regex.front().Split(text, next);
  const char* const end = text.data() + text.size();
  for (const char* p = text.data(); p < end;) {
    const char* const stop = now.fast(p, end);
    RETURN_IF_ERROR(next(std::string_view(p, static_cast<size_t>(stop - p))));
    p = stop;
  }
  return OkStatus();
}

}  // namespace mt::data
