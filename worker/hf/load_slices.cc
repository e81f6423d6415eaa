// A slice comes in runs of its rows, so that a table needs no second copy of itself.
#include "worker/hf/load_slices.h"

#include <algorithm>
#include <cstddef>

#include <fmt/ranges.h>

#include "kernels/core/dtype.h"

namespace mt::hf {
namespace {

using checkpoint::SliceToLoad;

constexpr std::string_view kKind = "weights/";

Status Check(const ParameterSource& files, const SliceToLoad& slice) {
  const auto it = files.parameters().find(slice.key.substr(kKind.size()));
  if (it == files.parameters().end())
    return base::NotFound("the model in the files has no {}", slice.key);
  if (it->second == slice.global_shape) return OkStatus();
  return base::FailedPrecondition("{} has shape [{}] in the files, [{}] in the job", slice.key,
                                  fmt::join(it->second, ", "), fmt::join(slice.global_shape, ", "));
}

class Loading {
 public:
  explicit Loading(const LoadSlicesArgs& args) : args_(args) {}

  Status Load(const SliceToLoad& slice) {
    int64_t row = 1;  // elements
    for (size_t d = 1; d < slice.shape.size(); ++d) row *= slice.shape[d];
    if (row == 0) return OkStatus();
    const int64_t element = kernels::SizeOf(slice.dtype);
    const int64_t at_once = std::max<int64_t>(1, args_.buffer_bytes / (row * element));
    for (int64_t first = 0; first < slice.shape[0]; first += at_once) {
      const int64_t count = std::min(at_once, slice.shape[0] - first);
      checkpoint::Box box{slice.offset, slice.shape};
      box.offset[0] += first;
      box.shape[0] = count;
      rows_.resize(static_cast<size_t>(count * row * element));
      RETURN_IF_ERROR(args_.files->Read(slice.key.substr(kKind.size()), box,
                                        slice.dtype == kernels::DType::kF64 ? "F64" : "F32",
                                        rows_.data()));
      Place(slice, first * row, count * row);
      if (args_.progress) args_.progress(std::ssize(rows_));
    }
    return OkStatus();
  }

 private:
  // Brings `count` elements, of which the first is the slice's element `begin`, to their places.
  void Place(const SliceToLoad& slice, int64_t begin, int64_t count) {
    const int64_t element = kernels::SizeOf(slice.dtype);
    const base::Runs places = slice.places.From(begin);
    void* const to = static_cast<char*>(slice.data) + slice.places.At(begin) * element;
    if (!args_.put) return base::CopyToRuns(places, count, element, rows_.data(), to);
    if (places.contiguous()) return args_.put(to, rows_.data(), count * element);
    spread_.assign(static_cast<size_t>(places.Span(count) * element), std::byte{0});
    base::CopyToRuns(places, count, element, rows_.data(), spread_.data());
    args_.put(to, spread_.data(), std::ssize(spread_));
  }

  const LoadSlicesArgs& args_;
  std::vector<std::byte> rows_, spread_;
};

}  // namespace

Status LoadSlices(const LoadSlicesArgs& args) {
  for (const SliceToLoad& slice : args.slices) RETURN_IF_ERROR(Check(*args.files, slice));
  Loading loading(args);
  for (const SliceToLoad& slice : args.slices) RETURN_IF_ERROR(loading.Load(slice));
  return OkStatus();
}

}  // namespace mt::hf
