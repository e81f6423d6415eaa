// Three buffers, each written at its own place when it is full.
#include "worker/data/idx_writer.h"

#include "common/base/check.h"

namespace mt::data {
namespace {

constexpr size_t kPending = size_t{1} << 18;
constexpr int64_t kArraysAt = 34;

template <class T>
void Append(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

StatusOr<IdxWriter> IdxWriter::Create(const std::string& path, const Shape& shape) {
  CHECK_GT(SizeOf(shape.type), 0) << "token files hold integers";
  IdxWriter writer;
  writer.shape_ = shape;
  ASSIGN_OR_RETURN(writer.file_, OutputFile::Open(path));
  std::string header("MMIDIDX\0\0", 9);
  Append<uint64_t>(&header, 1);  // version
  Append<uint8_t>(&header, static_cast<uint8_t>(shape.type));
  Append<uint64_t>(&header, static_cast<uint64_t>(shape.sequences));
  Append<uint64_t>(&header, static_cast<uint64_t>(shape.document_entries));
  RETURN_IF_ERROR(writer.file_.WriteAt(0, header));
  writer.arrays_[0].at = kArraysAt;
  writer.arrays_[1].at = kArraysAt + 4 * shape.sequences;
  writer.arrays_[2].at = kArraysAt + 12 * shape.sequences;
  return writer;
}

template <class T>
Status IdxWriter::Put(Array* array, T value) {
  Append(&array->pending, value);
  return array->pending.size() < kPending ? OkStatus() : Write(array);
}

Status IdxWriter::Write(Array* array) {
  RETURN_IF_ERROR(file_.WriteAt(array->at, array->pending));
  array->at += static_cast<int64_t>(array->pending.size());
  array->pending.clear();
  return OkStatus();
}

Status IdxWriter::AddSequence(int32_t tokens) {
  ++sequences_;
  RETURN_IF_ERROR(Put(&arrays_[0], tokens));
  RETURN_IF_ERROR(Put(&arrays_[1], offset_));
  offset_ += tokens * SizeOf(shape_.type);
  return OkStatus();
}

Status IdxWriter::AddDocumentEntry(int64_t first_sequence) {
  ++document_entries_;
  return Put(&arrays_[2], first_sequence);
}

Status IdxWriter::Finish() {
  CHECK_EQ(sequences_, shape_.sequences);
  CHECK_EQ(document_entries_, shape_.document_entries);
  for (Array& array : arrays_) RETURN_IF_ERROR(Write(&array));
  return file_.Sync();
}

}  // namespace mt::data
