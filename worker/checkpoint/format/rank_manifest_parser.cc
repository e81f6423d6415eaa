// The library calls a method for each value; `places_` tells which value it is. Its parser keeps no
// stack of calls, so that no nesting is too deep for it.
#include "worker/checkpoint/format/rank_manifest_parser.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace mt::checkpoint {
namespace {

using nlohmann::json;

// Objects and arrays that are open.
enum class Place {
  kOutside,
  kManifest,
  kTensors,
  kTensor,
  kTensorShape,
  kSlices,
  kSlice,
  kOffset,
  kShape,
  kDigests,
  kUnknown,
};

class RankTextReader final : public json::json_sax_t {
 public:
  explicit RankTextReader(const std::string& file) : file_(file) {}

  StatusOr<TensorTable> Result(bool parsed) {
    if (!fault_.empty()) return base::DataLoss("damaged manifest of a rank: {}", fault_);
    if (!parsed || format_ != kRankFormat || !has_tensors_)
      return base::DataLoss("no JSON object with format \"{}\" and tensors", kRankFormat);
    return std::move(tensors_);
  }

  bool start_object(std::size_t /*size*/) override {
    switch (place()) {
      case Place::kOutside:
        return Enter(Place::kManifest);
      case Place::kManifest:
        if (key_ != "tensors") return Enter(Place::kUnknown);
        has_tensors_ = true;
        return Enter(Place::kTensors);
      case Place::kTensors:
        if (!AddTensor()) return Fault("a tensor twice");
        return Enter(Place::kTensor);
      case Place::kSlices:
        tensor_->slices.emplace_back().file = file_;
        seen_in_slice_ = 0;
        return Enter(Place::kSlice);
      default:
        return EnterUnknown();
    }
  }

  bool start_array(std::size_t /*size*/) override {
    if (place() == Place::kTensor && key_ == "shape") {
      seen_in_tensor_ |= 1;
      return Enter(Place::kTensorShape);
    }
    if (place() == Place::kTensor && key_ == "slices") {
      seen_in_tensor_ |= 2;
      return Enter(Place::kSlices);
    }
    if (place() == Place::kSlice && key_ == "offset") return EnterOfSlice(Place::kOffset, 1);
    if (place() == Place::kSlice && key_ == "shape") return EnterOfSlice(Place::kShape, 2);
    if (place() == Place::kSlice && key_ == "xxh3_128") return EnterOfSlice(Place::kDigests, 4);
    return EnterUnknown();
  }

  bool end_object() override {
    if (place() == Place::kSlice && seen_in_slice_ != 15) return Fault("a slice without a field");
    if (place() == Place::kTensor && seen_in_tensor_ != 7) return Fault("a tensor without a field");
    places_.pop_back();
    return true;
  }
  bool end_array() override {
    places_.pop_back();
    return true;
  }

  bool key(std::string& name) override {
    key_.swap(name);
    return true;
  }

  bool string(std::string& text) override {
    if (place() == Place::kDigests) {
      const auto digest = base::ParseHash128(text);
      if (!digest) return Fault("what is no digest");
      slice().digests.push_back(*digest);
    } else if (place() == Place::kSlice && key_ == "tensor") {
      slice().tensor = text;
      seen_in_slice_ |= 8;
    } else if (place() == Place::kTensor && key_ == "dtype") {
      tensor_->dtype = text;
      seen_in_tensor_ |= 4;
    } else if (place() == Place::kManifest && key_ == "format") {
      format_ = text;
    } else {
      return Other();
    }
    return true;
  }

  bool number_integer(json::number_integer_t value) override { return Number(value); }
  bool number_unsigned(json::number_unsigned_t value) override {
    const auto number = static_cast<int64_t>(value);
    return number < 0 ? Other() : Number(number);
  }
  bool number_float(json::number_float_t /*value*/, const std::string& /*text*/) override {
    return Other();
  }
  bool null() override { return Other(); }
  bool boolean(bool /*value*/) override { return Other(); }
  bool binary(json::binary_t& /*value*/) override { return Other(); }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const json::exception& error) override {
    return Fault(error.what());
  }

 private:
  Place place() const { return places_.back(); }
  SliceEntry& slice() { return tensor_->slices.back(); }

  bool Enter(Place place) {
    places_.push_back(place);
    return true;
  }
  bool EnterOfSlice(Place place, int bit) {
    seen_in_slice_ |= bit;
    return Enter(place);
  }
  // What stands where no array or object is known: a new field of an object, else a fault.
  bool EnterUnknown() { return Other() && Enter(Place::kUnknown); }

  bool AddTensor() {
    const size_t before = tensors_.size();
    tensor_ = &tensors_.emplace_hint(tensors_.end(), key_, TensorEntry())->second;
    seen_in_tensor_ = 0;
    return tensors_.size() > before;
  }

  bool Number(int64_t value) {
    if (place() == Place::kTensorShape) {
      tensor_->shape.push_back(value);
    } else if (place() == Place::kOffset) {
      slice().offset.push_back(value);
    } else if (place() == Place::kShape) {
      slice().shape.push_back(value);
    } else {
      return Other();
    }
    return true;
  }

  // A value of no use: of a field that is not known, or a fault.
  bool Other() {
    const bool in_object =
        place() == Place::kManifest || place() == Place::kTensor || place() == Place::kSlice;
    static constexpr std::string_view kKnown[] = {"format", "tensors", "dtype",  "shape",
                                                  "slices", "tensor",  "offset", "xxh3_128"};
    const bool known = std::ranges::find(kKnown, key_) != std::end(kKnown);
    if (place() == Place::kUnknown || (in_object && !known)) return true;
    return Fault(fmt::format("a value of another type at \"{}\"", key_));
  }

  bool Fault(std::string why) {
    if (fault_.empty()) fault_ = std::move(why);
    return false;
  }

  const std::string& file_;
  std::vector<Place> places_ = {Place::kOutside};
  std::string key_;  // the last one
  std::string format_;
  bool has_tensors_ = false;
  TensorTable tensors_;
  TensorEntry* tensor_ = nullptr;               // the one under way
  int seen_in_tensor_ = 0, seen_in_slice_ = 0;  // bits of its fields
  std::string fault_;
};

}  // namespace

StatusOr<TensorTable> ParseRankText(std::string_view text, const std::string& file) {
  RankTextReader reader(file);
  const bool parsed = json::sax_parse(text, &reader);
  return reader.Result(parsed);
}

}  // namespace mt::checkpoint
