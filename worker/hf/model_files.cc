// Everything is checked by the headers before the first weight is read.
#include "worker/hf/model_files.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/ranges.h>

#include "common/base/check.h"
#include "megatrain/v1/job.pb.h"
#include "worker/checkpoint/format/safetensors.h"
#include "worker/hf/element_types.h"

namespace mt::hf {
namespace {

using checkpoint::Box;
using checkpoint::ElementSize;

// Bytes that are read at once where only parts of them are wanted.
constexpr int64_t kReadBytes = int64_t{16} << 20;
constexpr size_t kNamed = 5;  // faults that one message names

// What names of a class begin with; files of the network without a head lack it.
std::string PrefixOf(Family family) {
  const std::string word = WordName(family);
  return word.substr(0, word.find('.') + 1);
}

std::string ListOf(const std::vector<std::string>& all) {
  const std::vector<std::string> first(
      all.begin(), all.begin() + static_cast<std::ptrdiff_t>(std::min(all.size(), kNamed)));
  std::string text = fmt::format("{}", fmt::join(first, "; "));
  if (all.size() > kNamed) text += fmt::format("; and {} more", all.size() - kNamed);
  return text;
}

// Whether it is of the shape and a type of weights; else what is said.
std::string FaultOf(const HfTensor& tensor, const ShardFiles::Entry& entry) {
  if (entry.shape != tensor.shape) {
    std::string text = fmt::format("{} has shape [{}], config.json asks for [{}]", tensor.name,
                                   fmt::join(entry.shape, ", "), fmt::join(tensor.shape, ", "));
    const bool table = tensor.rows.size() == 1 && tensor.rows[0].parameter.ends_with("word.weight");
    if (table && entry.shape.size() == 2 && entry.shape[0] > tensor.shape[0])
      text += " (padded rows: cut them, or set vocab_size to the rows)";
    return text;
  }
  if (IsFloatType(entry.dtype)) return "";
  return fmt::format("{} has type {}: F32, F64, BF16 and F16 are read", tensor.name, entry.dtype);
}

}  // namespace

StatusOr<ModelFiles> ModelFiles::Open(const std::string& folder, const base::FileOpener& open) {
  ModelFiles out;
  const std::string path = base::JoinPath(folder, "config.json");
  ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path, kMaxConfigBytes, open));
  StatusOr<HfConfig> config = ParseConfig(text);
  if (!config.ok()) return base::Annotate(config.status(), path);
  out.config_ = *std::move(config);
  out.notes_ = out.config_.notes;
  ASSIGN_OR_RETURN(out.files_, ShardFiles::Open(folder, open));
  const megatrain::v1::Model& model = *out.config_.model;
  out.tensors_ = TensorsOf(model, out.config_.family);
  out.sources_ = SourcesOf(out.tensors_);
  out.parameters_ = ParametersOf(model);
  const Status found = out.FindTensors();
  if (!found.ok()) return base::Annotate(found, folder);
  if (model.tie_embeddings()) {
    const Status tied = out.CheckTiedHead();
    if (!tied.ok()) return base::Annotate(tied, folder);
  }
  RETURN_IF_ERROR(out.FoldNorms());
  return out;
}

Status ModelFiles::FindTensors() {
  const Family family = config_.family;
  const auto& there = files_.tensors();
  const bool bare = !there.contains(WordName(family));
  const std::string prefix = PrefixOf(family);
  std::vector<std::string> faults;
  std::map<std::string, bool> used;  // names in the files
  for (const HfTensor& tensor : tensors_) {
    const bool shortened = bare && tensor.name.starts_with(prefix);
    const std::string name = shortened ? tensor.name.substr(prefix.size()) : tensor.name;
    const auto it = there.find(name);
    if (it == there.end()) {
      faults.push_back(tensor.name + " is missing");
      continue;
    }
    const std::string fault = FaultOf(tensor, it->second.entry);
    if (!fault.empty()) faults.push_back(fault);
    used[name] = true;
    places_[tensor.name] = it->second;
  }
  for (const auto& [name, place] : there) {
    const bool tied_head = name == HeadName(family) && config_.model->tie_embeddings();
    if (used.contains(name) || tied_head || IsBuffer(family, (bare ? prefix : "") + name)) continue;
    faults.push_back(name + " is no tensor of this model");
  }
  return faults.empty() ? OkStatus() : base::InvalidArgument("{}", ListOf(faults));
}

// transformers 5 keeps both where they differ, 4 drops the head: two models.
Status ModelFiles::CheckTiedHead() const {
  const auto head = files_.tensors().find(HeadName(config_.family));
  if (head == files_.tensors().end()) return OkStatus();
  const ShardFiles::Place& words = places_.at(WordName(config_.family));
  const ShardFiles::Entry& a = words.entry;
  const ShardFiles::Entry& b = head->second.entry;
  if (a.shape != b.shape || a.dtype != b.dtype) {
    return base::FailedPrecondition("{} is {} [{}], and tied to a word table of {} [{}]",
                                    head->first, b.dtype, fmt::join(b.shape, ", "), a.dtype,
                                    fmt::join(a.shape, ", "));
  }
  std::vector<std::byte> ours, theirs;
  for (int64_t at = 0; at < a.bytes; at += kReadBytes) {
    const auto bytes = static_cast<size_t>(std::min(kReadBytes, a.bytes - at));
    ours.resize(bytes);
    theirs.resize(bytes);
    RETURN_IF_ERROR(files_.Read(words, at, ours));
    RETURN_IF_ERROR(files_.Read(head->second, at, theirs));
    if (ours == theirs) continue;
    const int64_t element = ElementSize(a.dtype);
    const auto differs = std::mismatch(ours.begin(), ours.end(), theirs.begin()).first;
    const int64_t i = (differs - ours.begin()) / element;
    double word = 0, output = 0;
    ConvertElements(a.dtype, ours.data() + i * element, "F64", reinterpret_cast<std::byte*>(&word),
                    1);
    ConvertElements(a.dtype, theirs.data() + i * element, "F64",
                    reinterpret_cast<std::byte*>(&output), 1);
    return base::FailedPrecondition(
        "tie_word_embeddings is true, but element {} of {} is {} and that of the word table {}: "
        "versions of transformers load two models; set it to false, or remove the head",
        at / element + i, head->first, output, word);
  }
  return OkStatus();
}

StatusOr<std::vector<double>> ModelFiles::ReadVector(const std::string& tensor) const {
  const ShardFiles::Place& place = places_.at(tensor);
  const int64_t count = place.entry.shape.at(0);
  std::vector<std::byte> bytes(static_cast<size_t>(place.entry.bytes));
  RETURN_IF_ERROR(files_.Read(place, 0, bytes));
  std::vector<double> out(static_cast<size_t>(count));
  ConvertElements(place.entry.dtype, bytes.data(), "F64", reinterpret_cast<std::byte*>(out.data()),
                  count);
  return out;
}

Status ModelFiles::FoldNorms() {
  const megatrain::v1::Model& model = *config_.model;
  if (config_.family != Family::kGptNeox || !model.parallel_residual()) return OkStatus();
  for (int64_t i = 0; i < model.layers(); ++i) {
    const std::string layer = fmt::format("gpt_neox.layers.{}.", i);
    Folded attention, ffn;
    ASSIGN_OR_RETURN(attention.gain, ReadVector(layer + "input_layernorm.weight"));
    ASSIGN_OR_RETURN(attention.shift, ReadVector(layer + "input_layernorm.bias"));
    ASSIGN_OR_RETURN(ffn.gain, ReadVector(layer + "post_attention_layernorm.weight"));
    ASSIGN_OR_RETURN(ffn.shift, ReadVector(layer + "post_attention_layernorm.bias"));
    if (attention.gain == ffn.gain && attention.shift == ffn.shift) continue;
    folded_[fmt::format("layers.{}.attention.", i)] = std::move(attention);
    folded_[fmt::format("layers.{}.ffn.", i)] = std::move(ffn);
  }
  if (!folded_.empty()) {
    notes_.push_back(fmt::format(
        "the two norms of {} layers differ beside the parallel residual: their gains and shifts "
        "are multiplied into the products that read them, and the one norm begins plain",
        folded_.size() / 2));
  }
  return OkStatus();
}

const ModelFiles::Folded* ModelFiles::FoldedInto(const std::string& parameter) const {
  for (const char* const part : {"attention.q.", "attention.k.", "attention.v.", "ffn.up."}) {
    const size_t at = parameter.find(part);
    if (at == std::string::npos) continue;
    const std::string branch =
        parameter.substr(0, parameter.find('.', at) + 1);  // "layers.0.attention."
    const auto it = folded_.find(branch);
    return it == folded_.end() ? nullptr : &it->second;
  }
  return nullptr;
}

Status ModelFiles::Read(const std::string& parameter, const Box& box, const std::string& dtype,
                        std::byte* out) const {
  CheckInside(parameter, box);
  int64_t count = 1;
  for (const int64_t dim : box.shape) count *= dim;
  if (count == 0) return OkStatus();
  std::vector<double> values;
  const size_t norm = parameter.find(".norm1.");
  if (norm != std::string::npos && folded_.contains(parameter.substr(0, norm) + ".attention.")) {
    values.assign(static_cast<size_t>(count), parameter.ends_with(".weight") ? 1.0 : 0.0);
  } else if (const Folded* const folded = FoldedInto(parameter)) {
    RETURN_IF_ERROR(ReadFolded(parameter, *folded, box, &values));
  } else {
    return ReadStored(parameter, box, dtype, out);
  }
  ConvertElements("F64", reinterpret_cast<const std::byte*>(values.data()), dtype, out, count);
  return OkStatus();
}

StatusOr<std::string> ModelFiles::Fingerprint() const {
  base::Hash128 digest;
  for (const auto& tensor : files_.tensors()) {
    const ShardFiles::Place& place = tensor.second;
    digest.Add(fmt::format("{} {} [{}]\n", tensor.first, place.entry.dtype,
                           fmt::join(place.entry.shape, ", ")));
    const auto read = [&](int64_t offset, std::span<std::byte> out) {
      return files_.Read(place, offset, out);
    };
    RETURN_IF_ERROR(AddEnds(place.entry.bytes, read, &digest));
  }
  return digest.Take();
}

Status ModelFiles::ReadFolded(const std::string& parameter, const Folded& norm, const Box& box,
                              std::vector<double>* out) const {
  const int64_t rows = box.shape[0];
  const bool matrix = box.shape.size() == 2;
  const int64_t columns = matrix ? box.shape[1] : 1;
  out->resize(static_cast<size_t>(rows * columns));
  RETURN_IF_ERROR(ReadStored(parameter, box, "F64", reinterpret_cast<std::byte*>(out->data())));
  if (matrix) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c)
        (*out)[static_cast<size_t>(r * columns + c)] *=
            norm.gain[static_cast<size_t>(box.offset[1] + c)];
    }
    return OkStatus();
  }
  // A bias: the products of its rows with the shift are added, a few rows at a time.
  const auto inputs = std::ssize(norm.shift);
  const std::string weight = parameter.substr(0, parameter.rfind('.')) + ".weight";
  const int64_t at_once = std::max<int64_t>(1, kReadBytes / (8 * inputs));
  std::vector<double> products;
  for (int64_t first = 0; first < rows; first += at_once) {
    const int64_t count = std::min(at_once, rows - first);
    products.resize(static_cast<size_t>(count * inputs));
    RETURN_IF_ERROR(ReadStored(weight, {{box.offset[0] + first, 0}, {count, inputs}}, "F64",
                               reinterpret_cast<std::byte*>(products.data())));
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t c = 0; c < inputs; ++c)
        (*out)[static_cast<size_t>(first + r)] +=
            products[static_cast<size_t>(r * inputs + c)] * norm.shift[static_cast<size_t>(c)];
    }
  }
  return OkStatus();
}

namespace {

// Part of a source that a box wants: rows of the tensor, and where they go in the box.
struct Wanted {
  int64_t tensor_row = 0, count = 0;
  int64_t box_row = 0;
};

struct Copy {
  const ShardFiles* files = nullptr;
  const ShardFiles::Place* place = nullptr;
  std::string dtype;           // of the result
  int64_t begin = 0, end = 0;  // columns
  std::byte* out = nullptr;    // [R, end - begin]
};

// A tensor [rows, columns], or a vector of one column.
Status CopyRows(const Copy& copy, const Wanted& wanted) {
  const ShardFiles::Entry& entry = copy.place->entry;
  const int64_t columns = entry.shape.size() == 2 ? entry.shape[1] : 1;
  const int64_t from = ElementSize(entry.dtype), to = ElementSize(copy.dtype);
  const int64_t width = copy.end - copy.begin;
  const int64_t at_once = std::max<int64_t>(1, kReadBytes / (columns * from));
  std::vector<std::byte> buffer;
  for (int64_t done = 0; done < wanted.count; done += at_once) {
    const int64_t count = std::min(at_once, wanted.count - done);
    buffer.resize(static_cast<size_t>(count * columns * from));
    RETURN_IF_ERROR(
        copy.files->Read(*copy.place, (wanted.tensor_row + done) * columns * from, buffer));
    for (int64_t r = 0; r < count; ++r) {
      ConvertElements(entry.dtype, buffer.data() + (r * columns + copy.begin) * from, copy.dtype,
                      copy.out + (wanted.box_row + done + r) * width * to, width);
    }
  }
  return OkStatus();
}

// A tensor [inputs, outputs] of which outputs are the rows that are wanted.
Status CopyTransposed(const Copy& copy, const Wanted& wanted) {
  const ShardFiles::Entry& entry = copy.place->entry;
  const int64_t outputs = entry.shape[1];
  const int64_t from = ElementSize(entry.dtype), to = ElementSize(copy.dtype);
  const int64_t width = copy.end - copy.begin;
  std::vector<std::byte> buffer(static_cast<size_t>(wanted.count * from));
  std::vector<std::byte> converted(static_cast<size_t>(wanted.count * to));
  for (int64_t c = copy.begin; c < copy.end; ++c) {
    RETURN_IF_ERROR(
        copy.files->Read(*copy.place, (c * outputs + wanted.tensor_row) * from, buffer));
    ConvertElements(entry.dtype, buffer.data(), copy.dtype, converted.data(), wanted.count);
    for (int64_t r = 0; r < wanted.count; ++r) {
      std::memcpy(copy.out + ((wanted.box_row + r) * width + c - copy.begin) * to,
                  converted.data() + r * to, static_cast<size_t>(to));
    }
  }
  return OkStatus();
}

}  // namespace

Status ModelFiles::ReadStored(const std::string& parameter, const Box& box,
                              const std::string& dtype, std::byte* out) const {
  const auto sources = sources_.find(parameter);
  CHECK(sources != sources_.end()) << parameter;
  const bool matrix = box.shape.size() == 2;
  for (const Source& source : sources->second) {
    const int64_t first = std::max(box.offset[0], source.first);
    const int64_t end = std::min(box.offset[0] + box.shape[0], source.first + source.count);
    if (first >= end) continue;
    const Copy copy{.files = &files_,
                    .place = &places_.at(source.tensor->name),
                    .dtype = dtype,
                    .begin = matrix ? box.offset[1] : 0,
                    .end = matrix ? box.offset[1] + box.shape[1] : 1,
                    .out = out};
    const Wanted wanted{.tensor_row = source.tensor_first + first - source.first,
                        .count = end - first,
                        .box_row = first - box.offset[0]};
    RETURN_IF_ERROR(source.tensor->transposed ? CopyTransposed(copy, wanted)
                                              : CopyRows(copy, wanted));
  }
  return OkStatus();
}

}  // namespace mt::hf
