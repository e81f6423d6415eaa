// Arrays of numbers are packed by the cheapest of three encodings that is exact, decided per array.
#include "daemon/telemetry/history_frame.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <xxhash.h>

#include "common/base/check.h"

namespace mt::daemon {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are written as memory lies");

// Encoding of an array; the values are part of the format.
enum Packing : uint8_t {
  kConstant = 0,  // one double for all rows
  kDoubles = 1,   // one double per row
  kDeltas = 2,    // integers: the first as int64, then differences as int32
};

constexpr double kExactInteger = 9'007'199'254'740'992.0;  // 2^53

void Append(std::string* out, const void* data, size_t bytes) {
  out->append(static_cast<const char*>(data), bytes);
}
template <class T>
void AppendValue(std::string* out, T value) {
  Append(out, &value, sizeof(value));
}

bool SameBits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

bool IsWhole(double value) {
  return std::abs(value) < kExactInteger && std::trunc(value) == value &&
         !(value == 0 && std::signbit(value));
}

Packing ChoosePacking(std::span<const double> values) {
  if (std::ranges::all_of(values, [&](double v) { return SameBits(v, values[0]); })) {
    return kConstant;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (!IsWhole(values[i])) return kDoubles;
    const double step = i == 0 ? 0 : values[i] - values[i - 1];
    if (std::abs(step) > std::numeric_limits<int32_t>::max()) return kDoubles;
  }
  return kDeltas;
}

void PackArray(std::string* out, std::span<const double> values) {
  const Packing packing = ChoosePacking(values);
  AppendValue<uint8_t>(out, packing);
  switch (packing) {
    case kConstant:
      AppendValue(out, values[0]);
      return;
    case kDoubles:
      Append(out, values.data(), values.size_bytes());
      return;
    case kDeltas:
      AppendValue(out, static_cast<int64_t>(values[0]));
      for (size_t i = 1; i < values.size(); ++i) {
        AppendValue(out, static_cast<int32_t>(values[i] - values[i - 1]));
      }
      return;
  }
}

// Reads a body from front to back. After reading beyond its end every value is 0 and ok() false.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  template <class T>
  T Value() {
    T value{};
    Copy(&value, sizeof(value));
    return value;
  }
  void Copy(void* to, size_t size) {
    if (size > bytes_.size()) {
      ok_ = false;
      return;
    }
    std::memcpy(to, bytes_.data(), size);
    bytes_.remove_prefix(size);
  }
  bool ok() const { return ok_; }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

void UnpackArray(Reader* in, size_t rows, std::vector<double>* out) {
  const auto packing = in->Value<uint8_t>();
  if (packing == kConstant) {
    out->assign(rows, in->Value<double>());
  } else if (packing == kDoubles) {
    out->resize(rows);
    in->Copy(out->data(), rows * sizeof(double));
  } else {
    out->resize(rows);
    auto value = in->Value<int64_t>();
    for (size_t i = 0; i < rows; ++i) {
      if (i > 0) value += in->Value<int32_t>();
      (*out)[i] = static_cast<double>(value);
    }
  }
}

std::vector<double> AsDoubles(const std::vector<int64_t>& values) {
  return {values.begin(), values.end()};
}

std::vector<int64_t> UnpackIntegers(Reader* in, size_t rows) {
  std::vector<double> values;
  UnpackArray(in, rows, &values);
  std::vector<int64_t> out;
  out.reserve(rows);
  for (const double value : values) {
    out.push_back(IsWhole(value) ? static_cast<int64_t>(value) : 0);
  }
  return out;
}

std::string EncodeBody(const HistoryTable& rows) {
  std::string body;
  PackArray(&body, AsDoubles(rows.steps));
  PackArray(&body, AsDoubles(rows.times_us));
  PackArray(&body, AsDoubles(rows.epochs));
  for (const HistoryColumn& column : rows.columns) {
    AppendValue(&body, static_cast<uint8_t>(column.name.size()));
    body += column.name;
    PackArray(&body, column.last);
    if (rows.level == 0) continue;
    PackArray(&body, column.min);
    PackArray(&body, column.max);
  }
  body.resize((body.size() + kHistoryFrameAlign - 1) / kHistoryFrameAlign * kHistoryFrameAlign);
  return body;
}

}  // namespace

std::string EncodeHistoryFrame(const HistoryTable& rows) {
  CHECK(!rows.empty()) << "a frame has rows";
  CHECK_LE(rows.num_rows(), size_t{kHistoryFrameRows});
  const std::string body = EncodeBody(rows);
  HistoryFrameHeader header;
  header.level = static_cast<uint32_t>(rows.level);
  header.num_rows = static_cast<uint32_t>(rows.num_rows());
  header.num_columns = static_cast<uint32_t>(rows.columns.size());
  header.body_bytes = body.size();
  header.first_step = rows.steps.front();
  header.last_step = rows.steps.back();
  header.first_time_us = rows.times_us.front();
  header.last_time_us = rows.times_us.back();
  header.last_epoch = rows.epochs.back();
  header.body_sum = XXH3_64bits(body.data(), body.size());
  header.header_sum = XXH3_64bits(&header, offsetof(HistoryFrameHeader, header_sum));
  std::string out;
  out.reserve(sizeof(header) + body.size());
  Append(&out, &header, sizeof(header));
  return out += body;
}

std::optional<HistoryFrameHeader> ParseHistoryHeader(std::string_view bytes) {
  HistoryFrameHeader header;
  if (bytes.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const bool good =
      header.magic == HistoryFrameHeader::kMagic &&
      header.header_sum == XXH3_64bits(&header, offsetof(HistoryFrameHeader, header_sum)) &&
      header.level < kHistoryLevels && header.num_rows > 0 &&
      header.num_rows <= kHistoryFrameRows && header.num_columns <= kHistoryColumns &&
      header.body_bytes % kHistoryFrameAlign == 0;
  if (!good) return std::nullopt;
  return header;
}

StatusOr<HistoryTable> DecodeHistoryBody(const HistoryFrameHeader& header, std::string_view body,
                                         std::span<const std::string> names) {
  if (body.size() != header.body_bytes ||
      XXH3_64bits(body.data(), body.size()) != header.body_sum) {
    return base::DataLoss("steps {} to {}: the checksum does not match", header.first_step,
                          header.last_step);
  }
  Reader in(body);
  const size_t rows = header.num_rows;
  HistoryTable out(static_cast<int>(header.level));
  out.steps = UnpackIntegers(&in, rows);
  out.times_us = UnpackIntegers(&in, rows);
  out.epochs = UnpackIntegers(&in, rows);
  for (uint32_t i = 0; i < header.num_columns && in.ok(); ++i) {
    HistoryColumn column;
    column.name.resize(in.Value<uint8_t>());
    in.Copy(column.name.data(), column.name.size());
    UnpackArray(&in, rows, &column.last);
    if (header.level > 0) {
      UnpackArray(&in, rows, &column.min);
      UnpackArray(&in, rows, &column.max);
    }
    if (names.empty() || std::ranges::find(names, column.name) != names.end()) {
      out.columns.push_back(std::move(column));
    }
  }
  if (!in.ok()) return base::DataLoss("step {}: the frame is too short", header.first_step);
  return out;
}

}  // namespace mt::daemon
