// mt_data_bench: what a rank waits for its data, for docs/benchmarks.md.
//   mt_data_bench indices FOLDER [DOCUMENTS=100000000]
// makes an .idx of so many documents of 1,000 tokens on average in FOLDER (24 bytes each, and a
// .bin without blocks), and prints how long the first rank of a node takes to open it, to build the
// sample index of one epoch of S 2048 and to keep it there, then the next, which maps it.
//   mt_data_bench loader PREFIX VOCABULARY [TOKENS_A_SECOND=1000000]
// reads microbatches of 8 x 2048 tokens at such a pace, as a device would, and prints the share of
// the time that the loader's caller waits, then the rate of a loader whose caller never does.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <vector>

#include "worker/data/data_source.h"
#include "worker/data/idx_writer.h"
#include "worker/data/indexed_dataset.h"
#include "worker/data/loader.h"

namespace mt::data {
namespace {

constexpr int64_t kSeqLength = 2048;
constexpr int64_t kMicroBatch = 8;
using SteadyClock = std::chrono::steady_clock;

double SecondsSince(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

// The most that this process had in memory, mapped files included.
double PeakGigabytes() {
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  return static_cast<double>(use.ru_maxrss) * 1024 / 1e9;
}

// Lengths as texts have them: many short ones, few long ones. Returns the tokens in all.
StatusOr<int64_t> MakeDocuments(const std::string& prefix, int64_t documents) {
  ASSIGN_OR_RETURN(IdxWriter idx,
                   IdxWriter::Create(prefix + ".idx",
                                     {.sequences = documents, .document_entries = documents + 1}));
  std::mt19937_64 random(1);
  std::lognormal_distribution<double> length(6.4, 1.0);  // mean e^6.9
  int64_t tokens = 0;
  for (int64_t i = 0; i < documents; ++i) {
    const int32_t drawn = 1 + static_cast<int32_t>(std::min(length(random), 1e6));
    RETURN_IF_ERROR(idx.AddSequence(drawn));
    RETURN_IF_ERROR(idx.AddDocumentEntry(i));
    tokens += drawn;
  }
  RETURN_IF_ERROR(idx.AddDocumentEntry(documents));
  RETURN_IF_ERROR(idx.Finish());
  ASSIGN_OR_RETURN(OutputFile bin, OutputFile::Open(prefix + ".bin"));
  RETURN_IF_ERROR(bin.CutBack(tokens * int64_t{sizeof(uint16_t)}));
  return tokens;
}

DataSourceArgs OneEpoch(const std::string& prefix, int64_t vocab_size, int64_t samples) {
  DataSourceArgs args;
  args.train = {{.prefix = prefix}};
  args.seq_length = kSeqLength;
  args.vocab_size = vocab_size;
  args.seed = 1234;
  args.train_samples = samples;
  return args;
}

Status Indices(const std::string& folder, int64_t documents) {
  const std::string prefix = folder + "/documents", cache = folder + "/cache";
  std::filesystem::create_directories(cache);
  ASSIGN_OR_RETURN(const int64_t tokens, MakeDocuments(prefix, documents));
  std::printf("%.1f M documents, %.2f B tokens\n", static_cast<double>(documents) / 1e6,
              static_cast<double>(tokens) / 1e9);
  for (const char* rank : {"first", "next"}) {
    DataSourceArgs args = OneEpoch(prefix, 51200, (tokens - 1) / kSeqLength);
    args.cache = {.folder = cache, .owner = "bench/indices"};
    const auto begin = SteadyClock::now();
    ASSIGN_OR_RETURN(const DataSource source, OpenDataSource(args));
    std::printf("%s rank: %.2f s, %ld samples; at most %.2f GB in memory so far\n", rank,
                SecondsSince(begin), static_cast<long>(source.train->num_samples()),
                PeakGigabytes());
  }
  return OkStatus();
}

Status Loading(const std::string& prefix, int64_t vocab_size, double tokens_a_second) {
  ASSIGN_OR_RETURN(const auto files, IndexedDataset::Open(prefix));
  constexpr int64_t kMicrobatches = 1200;
  const int64_t samples = kMicrobatches * kMicroBatch;
  ASSIGN_OR_RETURN(const DataSource source,
                   OpenDataSource(OneEpoch(prefix, vocab_size, 2 * samples)));
  Loader::Args args{.dataset = source.train, .micro_batch_size = kMicroBatch};
  ASSIGN_OR_RETURN(const auto loader, Loader::Create(args));
  const double period = static_cast<double>(kMicroBatch * kSeqLength) / tokens_a_second;
  RETURN_IF_ERROR(loader->Next().status());  // what a run waits for once
  double waited = 0;
  const auto begin = SteadyClock::now();
  for (int64_t i = 1; i < kMicrobatches; ++i) {
    std::this_thread::sleep_until(begin +
                                  std::chrono::duration<double>(period * static_cast<double>(i)));
    const auto asked = SteadyClock::now();
    RETURN_IF_ERROR(loader->Next().status());
    waited += SecondsSince(asked);
  }
  const double seconds = SecondsSince(begin);
  std::printf("%ld tokens of documents of %ld; at %.0f tokens a second the caller waits %.4f %%\n",
              static_cast<long>((kMicrobatches - 1) * kMicroBatch * kSeqLength),
              static_cast<long>(files->num_tokens() / files->num_documents()),
              static_cast<double>((kMicrobatches - 1) * kMicroBatch * kSeqLength) / seconds,
              100 * waited / seconds);
  const auto alone = SteadyClock::now();
  for (int64_t i = 0; i < kMicrobatches; ++i) RETURN_IF_ERROR(loader->Next().status());
  std::printf(
      "one thread reads %.1f M tokens a second\n",
      static_cast<double>(kMicrobatches * kMicroBatch * kSeqLength) / 1e6 / SecondsSince(alone));
  return OkStatus();
}

Status Run(const std::vector<std::string>& words) {
  const auto number = [&words](size_t i, double otherwise) {
    return words.size() > i ? std::strtod(words[i].c_str(), nullptr) : otherwise;
  };
  if (words.size() >= 2 && words[0] == "indices" && number(2, 1e8) >= 1)
    return Indices(words[1], static_cast<int64_t>(number(2, 1e8)));
  if (words.size() >= 3 && words[0] == "loader" && number(3, 1e6) > 0)
    return Loading(words[1], static_cast<int64_t>(number(2, 0)), number(3, 1e6));
  return base::InvalidArgument(
      "usage: mt_data_bench indices FOLDER [DOCUMENTS] | loader PREFIX VOCABULARY [TOKENS]");
}

}  // namespace
}  // namespace mt::data

int main(int argc, char** argv) {
  const mt::Status status = mt::data::Run({argv + 1, argv + argc});
  if (status.ok()) return 0;
  std::fprintf(stderr, "mt_data_bench: %s\n", mt::base::Message(status).c_str());
  return 1;
}
