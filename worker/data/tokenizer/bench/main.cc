// mt_tokenizer_bench: how fast a tokenizer encodes a text on one core, for docs/benchmarks.md.
//   mt_tokenizer_bench TEXT VOCAB.JSON MERGES.TXT     or     mt_tokenizer_bench TEXT TOKENIZER.JSON
// Prints the MB/s, of processor time, of each of five runs, each with an empty cache of pieces as a
// new process has it.
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "worker/data/tokenizer/bpe_tokenizer.h"
#include "worker/data/tokenizer/gpt2_files.h"
#include "worker/data/tokenizer/hf_file.h"

namespace mt::data {
namespace {

// Of this thread, so that other work on the machine does not count.
double CpuSeconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

StatusOr<BpeParts> Parts(const std::vector<std::string>& files) {
  ASSIGN_OR_RETURN(const std::string first, base::ReadFile(files[0]));
  if (files.size() == 1) return ParseHfFile(first);
  ASSIGN_OR_RETURN(const std::string second, base::ReadFile(files[1]));
  return ParseGpt2Files(first, second);
}

Status Run(const std::string& text_file, const std::vector<std::string>& files) {
  ASSIGN_OR_RETURN(const BpeParts parts, Parts(files));
  ASSIGN_OR_RETURN(const std::string text, base::ReadFile(text_file));
  for (int run = 0; run < 5; ++run) {
    ASSIGN_OR_RETURN(const auto tokenizer, MakeBpeTokenizer(parts));
    std::vector<int32_t> ids;
    const double begin = CpuSeconds();
    RETURN_IF_ERROR(tokenizer->Encode(text, &ids));
    const double taken = CpuSeconds() - begin;
    std::printf("%.2f MB/s (%zu ids of %zu bytes)\n",
                static_cast<double>(text.size()) / 1e6 / taken, ids.size(), text.size());
  }
  return OkStatus();
}

}  // namespace
}  // namespace mt::data

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() != 2 && words.size() != 3) {
    std::fputs("usage: mt_tokenizer_bench TEXT VOCAB.JSON MERGES.TXT | TEXT TOKENIZER.JSON\n",
               stderr);
    return 2;
  }
  const mt::Status status = mt::data::Run(words[0], {words.begin() + 1, words.end()});
  if (status.ok()) return 0;
  std::fprintf(stderr, "mt_tokenizer_bench: %s\n", mt::base::Message(status).c_str());
  return 1;
}
