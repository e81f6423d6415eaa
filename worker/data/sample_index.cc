// Megatron's algorithm with its random numbers: one ShuffleStream first shuffles the document
// index, then the shuffle index, exactly as numpy's RandomState does there. The 80 % rule for the
// last epoch and all roundings are Megatron's, so that the sample order is equal.
#include "worker/data/sample_index.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/math.h"
#include "worker/data/shuffle.h"

namespace mt::data {
namespace {

constexpr int64_t kAlignment = 64;
// A document index of 32 GiB: a larger one is likelier a typing error than intended.
constexpr int64_t kMaxPositions = int64_t{1} << 33;

template <class T>
T LoadAt(const std::byte* base, int64_t index) {
  T value;
  std::memcpy(&value, base + index * int64_t{sizeof(T)}, sizeof(T));
  return value;
}

// Buffers values of T and appends them to a sink in large pieces.
template <class T>
class Batched {
 public:
  explicit Batched(ImageSink* sink) : sink_(sink) { buffer_.reserve(kValues); }
  Status Put(T value) {
    buffer_.push_back(value);
    return buffer_.size() < kValues ? OkStatus() : Flush();
  }
  Status Flush() {
    RETURN_IF_ERROR(sink_->Append(buffer_.data(), buffer_.size() * sizeof(T)));
    buffer_.clear();
    return OkStatus();
  }

 private:
  static constexpr size_t kValues = size_t{1} << 16;
  ImageSink* const sink_;
  std::vector<T> buffer_;
};

// Appends zeros up to the next array's offset.
Status Pad(int64_t from, int64_t to, ImageSink* sink) {
  const char zeros[kAlignment] = {};
  CHECK(to >= from && to - from < kAlignment) << from << " to " << to;
  return sink->Append(zeros, static_cast<size_t>(to - from));
}

// The document index: all sequence numbers once per epoch, shuffled over all epochs together, or
// with the last epoch shuffled apart.
std::vector<int32_t> BuildDocuments(const IndexRequest& request, const IndexPlan& plan,
                                    ShuffleStream* stream) {
  const int64_t sequences = request.range.end - request.range.begin;
  std::vector<int32_t> documents(static_cast<size_t>(plan.epochs * sequences));
  for (int64_t epoch = 0; epoch < plan.epochs; ++epoch) {
    const auto begin = documents.begin() + epoch * sequences;
    std::iota(begin, begin + sequences, static_cast<int32_t>(request.range.begin));
  }
  const std::span<int32_t> all(documents);
  if (plan.separate_last_epoch) {
    const size_t before = static_cast<size_t>((plan.epochs - 1) * sequences);
    stream->Shuffle(all.first(before));
    stream->Shuffle(all.subspan(before));
  } else {
    stream->Shuffle(all);
  }
  return documents;
}

// The sample index. Row 0 is (0, 0), and row i + 1 lies S tokens after row i. A row never points
// past the last token of a sequence: samples overlap by one token, and that token is where the next
// sample begins.
template <class T>
Status WriteStarts(const IndexedDataset& data, std::span<const int32_t> documents,
                   const IndexRequest& request, int64_t samples, ImageSink* sink) {
  Batched<T> out(sink);
  int64_t position = 0;
  int64_t offset = 0;  // in what the range has of the sequence
  RETURN_IF_ERROR(out.Put(0));
  RETURN_IF_ERROR(out.Put(0));
  const int64_t last = static_cast<int64_t>(documents.size()) - 1;
  for (int64_t row = 1; row <= samples; ++row) {
    int64_t remaining = request.seq_length + 1;
    for (;;) {
      const int32_t sequence = documents[static_cast<size_t>(position)];
      const TokenSpan span = SpanOf(request.range, sequence, data.length(sequence));
      const int64_t available = span.end - span.begin - offset;
      if (available >= remaining) {
        offset += remaining - 1;
        break;
      }
      if (position == last) {  // a kept partial sample ends at the last token
        RETURN_IF_ERROR(data.Intact());
        CHECK(request.keep_partial && row == samples) << "row " << row << " of " << samples;
        offset += std::max<int64_t>(available - 1, 0);
        break;
      }
      remaining -= available;
      ++position;
      offset = 0;
    }
    RETURN_IF_ERROR(out.Put(static_cast<T>(position)));
    RETURN_IF_ERROR(out.Put(static_cast<T>(offset)));
  }
  return out.Flush();
}

template <class T>
Status WriteShuffle(const IndexPlan& plan, ShuffleStream* stream, ImageSink* sink) {
  std::vector<T> order(static_cast<size_t>(plan.samples));
  std::iota(order.begin(), order.end(), T{0});
  const std::span<T> all(order);
  if (plan.separate_last_epoch) {
    const size_t before = static_cast<size_t>(plan.samples_before_last);
    stream->Shuffle(all.first(before));
    stream->Shuffle(all.subspan(before));
  } else {
    stream->Shuffle(all);
  }
  return sink->Append(order.data(), order.size() * sizeof(T));
}

// Collects the image in memory.
class StringSink final : public ImageSink {
 public:
  explicit StringSink(int64_t bytes) { image_.reserve(static_cast<size_t>(bytes)); }
  Status Append(const void* data, size_t bytes) override {
    if (bytes > 0) image_.append(static_cast<const char*>(data), bytes);
    return OkStatus();
  }
  std::string Take() { return std::move(image_); }

 private:
  std::string image_;
};

// First byte of the storage.
const std::byte* BytesOf(const std::variant<std::string, MappedFile>& storage) {
  if (const auto* text = std::get_if<std::string>(&storage)) {
    return reinterpret_cast<const std::byte*>(text->data());
  }
  return std::get<MappedFile>(storage).data();
}

}  // namespace

StatusOr<IndexPlan> PlanIndex(const IndexRequest& request, int64_t tokens_per_epoch) {
  const int64_t s = request.seq_length;
  const int64_t asked = request.samples_asked;
  CHECK(s > 0 && asked >= 0 && !(request.keep_partial && asked > 0));
  const int64_t sequences = request.range.end - request.range.begin;
  const int64_t least = request.keep_partial ? 2 : s + 1;
  if (tokens_per_epoch < 1 || (asked == 0 && tokens_per_epoch < least)) {
    return base::InvalidArgument(
        "{} sequences with {} tokens cannot give a sample of {} + 1 tokens; use more data, another "
        "split or a shorter seq_length",
        sequences, tokens_per_epoch, s);
  }
  IndexPlan plan;
  plan.tokens_per_epoch = tokens_per_epoch;
  plan.epochs = 1;
  if (asked > 0) {
    if (asked > (std::numeric_limits<int64_t>::max() - tokens_per_epoch) / s - 1) {
      return base::InvalidArgument("{} samples of {} tokens are too many", asked, s);
    }
    plan.epochs = base::CeilDiv(asked * s + 1, tokens_per_epoch);
  }
  if (plan.epochs > kMaxPositions / sequences) {
    return base::InvalidArgument(
        "{} samples of {} tokens need {} epochs of {} sequences with {} tokens: use more data or a "
        "shorter run",
        asked, s, plan.epochs, sequences, tokens_per_epoch);
  }
  const int64_t labels = plan.epochs * tokens_per_epoch - 1;
  plan.samples = request.keep_partial ? base::CeilDiv(labels, s) : labels / s;
  if (plan.epochs > 1) {
    const int64_t before = ((plan.epochs - 1) * tokens_per_epoch - 1) / s;
    const int64_t last = asked - before;
    const int64_t per_epoch = (tokens_per_epoch - 1) / s;
    plan.separate_last_epoch = last < static_cast<int64_t>(0.80 * static_cast<double>(per_epoch));
    if (plan.separate_last_epoch) plan.samples_before_last = before;
  }
  return plan;
}

IndexLayout MakeIndexLayout(const IndexRequest& request, const IndexPlan& plan) {
  IndexLayout layout;
  layout.num_positions = plan.epochs * (request.range.end - request.range.begin);
  layout.num_samples = plan.samples;
  // Offsets always fit i32, because the .idx stores lengths as i32.
  layout.wide_starts = layout.num_positions > std::numeric_limits<int32_t>::max();
  layout.wide_shuffle = plan.samples >= int64_t{std::numeric_limits<uint32_t>::max()} - 1;
  layout.starts_at = base::RoundUp(4 * layout.num_positions, kAlignment);
  const int64_t start_bytes = (layout.wide_starts ? 16 : 8) * (plan.samples + 1);
  layout.shuffle_at = base::RoundUp(layout.starts_at + start_bytes, kAlignment);
  layout.total_bytes = layout.shuffle_at + (layout.wide_shuffle ? 8 : 4) * plan.samples;
  return layout;
}

Status BuildIndex(const IndexedDataset& data, const IndexRequest& request, const IndexPlan& plan,
                  ImageSink* sink) {
  CHECK_LE(request.range.end, data.num_sequences());
  if (request.range.end > std::numeric_limits<int32_t>::max()) {
    return base::InvalidArgument("{}.idx: {} sequences; the document index holds 2^31 - 1 at most",
                                 data.prefix(), data.num_sequences());
  }
  const IndexLayout layout = MakeIndexLayout(request, plan);
  ShuffleStream stream(request.seed);
  {
    const std::vector<int32_t> documents = BuildDocuments(request, plan, &stream);
    RETURN_IF_ERROR(sink->Append(documents.data(), documents.size() * sizeof(int32_t)));
    RETURN_IF_ERROR(Pad(4 * layout.num_positions, layout.starts_at, sink));
    RETURN_IF_ERROR(layout.wide_starts
                        ? WriteStarts<int64_t>(data, documents, request, plan.samples, sink)
                        : WriteStarts<int32_t>(data, documents, request, plan.samples, sink));
  }
  const int64_t start_bytes = (layout.wide_starts ? 16 : 8) * (plan.samples + 1);
  RETURN_IF_ERROR(Pad(layout.starts_at + start_bytes, layout.shuffle_at, sink));
  return layout.wide_shuffle ? WriteShuffle<int64_t>(plan, &stream, sink)
                             : WriteShuffle<uint32_t>(plan, &stream, sink);
}

SampleIndex::SampleIndex(IndexPlan plan, IndexLayout layout,
                         std::variant<std::string, MappedFile> storage, size_t image_at)
    : plan_(plan),
      layout_(layout),
      storage_(std::move(storage)),
      image_(BytesOf(storage_) + image_at) {}

int32_t SampleIndex::document(int64_t position) const {
  CHECK(position >= 0 && position < layout_.num_positions) << "position " << position;
  return LoadAt<int32_t>(image_, position);
}

SampleStart SampleIndex::start(int64_t row) const {
  CHECK(row >= 0 && row <= layout_.num_samples) << "row " << row;
  const std::byte* starts = image_ + layout_.starts_at;
  if (layout_.wide_starts) {
    return {LoadAt<int64_t>(starts, 2 * row), LoadAt<int64_t>(starts, 2 * row + 1)};
  }
  return {LoadAt<int32_t>(starts, 2 * row), LoadAt<int32_t>(starts, 2 * row + 1)};
}

int64_t SampleIndex::shuffled(int64_t sample) const {
  CHECK(sample >= 0 && sample < layout_.num_samples) << "sample " << sample;
  const std::byte* order = image_ + layout_.shuffle_at;
  return layout_.wide_shuffle ? LoadAt<int64_t>(order, sample) : LoadAt<uint32_t>(order, sample);
}

bool SampleIndex::lost() const {
  const auto* const file = std::get_if<MappedFile>(&storage_);
  return file != nullptr && file->lost();
}

StatusOr<std::unique_ptr<SampleIndex>> BuildIndexInMemory(const IndexedDataset& data,
                                                          const IndexRequest& request) {
  ASSIGN_OR_RETURN(const IndexPlan plan, PlanIndex(request, CountTokens(data, request.range)));
  const IndexLayout layout = MakeIndexLayout(request, plan);
  StringSink sink(layout.total_bytes);
  RETURN_IF_ERROR(BuildIndex(data, request, plan, &sink));
  return std::make_unique<SampleIndex>(plan, layout, sink.Take(), 0);
}

}  // namespace mt::data
