// Words count parcels of all passes, modulo 2^32.
#include "worker/parallel/pipeline/peer_link.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "common/base/log.h"

namespace mt::parallel {
namespace {

using kernels::DType;
using kernels::Stream;

// So far ahead a word is set to end all waits for it; by both ends, which add up.
constexpr uint32_t kFarAhead = uint32_t{1} << 28;

// So often a deadline a word that is waited for is looked at, to see whether it moves.
constexpr int kLooks = 8;

Status SendText(comm::ProcessGroup& group, Stream& stream, const std::string& text) {
  const int peer = 1 - group.rank();
  const auto size = static_cast<int64_t>(text.size());
  RETURN_IF_ERROR(group.Send(stream, &size, 1, DType::kI64, peer, 0));
  return group.Send(stream, text.data(), size, DType::kU8, peer, 0);
}

StatusOr<std::string> ReceiveText(comm::ProcessGroup& group, Stream& stream) {
  const int peer = 1 - group.rank();
  int64_t size = 0;
  RETURN_IF_ERROR(group.Recv(stream, &size, 1, DType::kI64, peer, 0));
  std::string text(static_cast<size_t>(size), '\0');
  RETURN_IF_ERROR(group.Recv(stream, text.data(), size, DType::kU8, peer, 0));
  return text;
}

// The peer's answer to the same question.
StatusOr<std::string> Swap(comm::ProcessGroup& group, Stream& stream, const std::string& mine) {
  RETURN_IF_ERROR(SendText(group, stream, mine));
  return ReceiveText(group, stream);
}

std::string Place(const comm::ProcessGroup& host, const kernels::Device& device) {
  return nlohmann::json{host.host_identity(), device.Uuid()}.dump();
}

// "" if this device can write that of the peer, else why not.
std::string WhyNot(const std::string& peer_text, const comm::ProcessGroup& host,
                   kernels::Device& device, bool* elsewhere) {
  if (device.peers() == nullptr) return device.Describe() + " shares no memory";
  const auto peer = nlohmann::json::parse(peer_text, nullptr, /*allow_exceptions=*/false);
  if (!peer.is_array() || peer.size() != 2) return "the neighbour runs another version";
  *elsewhere = host.host_identity().empty() || peer[0] != host.host_identity();
  if (*elsewhere) return "they are on different hosts";
  const std::string uuid = peer[1];
  if (device.peers()->CanReach(uuid)) return "";
  return fmt::format("there is no path between GPUs {} and {}, or this process does not see both",
                     device.Uuid(), uuid);
}

}  // namespace

StatusOr<PeerEnd> MeetPeer(std::unique_ptr<comm::ProcessGroup> host, kernels::Device* device,
                           std::string* why_not) {
  PeerEnd end{.host = std::move(host)};
  const auto stream = device->CreateStream(kernels::StreamPriority::kLow);
  ASSIGN_OR_RETURN(const std::string peer, Swap(*end.host, *stream, Place(*end.host, *device)));
  bool elsewhere = false;
  *why_not = WhyNot(peer, *end.host, *device, &elsewhere);
  std::string name;
  if (why_not->empty()) {
    end.word = device->Allocate(sizeof(uint32_t), kernels::MemoryKind::kShared);
    device->Zero(*stream, end.word->data(), sizeof(uint32_t));
    stream->Synchronize();
    name = device->peers()->Export(end.word->data(), why_not);
  }
  ASSIGN_OR_RETURN(const std::string peer_name, Swap(*end.host, *stream, name));
  std::unique_ptr<kernels::DeviceBuffer> mapped;
  if (why_not->empty() && !peer_name.empty()) {
    mapped = device->peers()->Import(peer_name, why_not);
  }
  ASSIGN_OR_RETURN(const std::string both,
                   Swap(*end.host, *stream, mapped == nullptr ? *why_not : "yes"));
  if (mapped != nullptr && both == "yes") {
    end.peer_word = std::move(mapped);
  } else if (elsewhere) {
    why_not->clear();
  } else if (why_not->empty()) {
    *why_not = both;
  }
  return end;
}

PeerLinkEnd::PeerLinkEnd(PeerEnd end, kernels::Device* device)
    : end_(std::move(end)),
      device_(device),
      stream_(device->CreateStream(kernels::StreamPriority::kHigh)),
      own_watch_(end_.watch == nullptr ? std::make_unique<comm::DeviceWatch>(device, false)
                                       : nullptr),
      watch_(end_.watch == nullptr ? own_watch_.get() : end_.watch),
      stored_{device->CreateEvent(), device->CreateEvent()} {}

void PeerLinkEnd::Watch() { watch_->Add(this); }

// Of an end that is over only looks are left to be made, which do not use the peer's word.
void PeerLinkEnd::Unwatch() {
  watch_->Remove(this);
  {
    base::MutexLock lock(&mu_);
    if (!broken_ && !left_) return;
  }
  watch_->Add(this);
  end_.peer_word.reset();
  watch_->Remove(this);
}

void PeerLinkEnd::Await(Stream& stream, uint32_t value) {
  stream.WaitValue(word(), value);
  base::MutexLock lock(&mu_);
  awaited_ = value;
  awaited_at_ = base::Clock::Real()->Now();
}

// The host enqueues waits for parcels of several steps: the newest may be due long after the
// deadline, and the link be well.
void PeerLinkEnd::Look(base::MonotonicTime now) {
  uint32_t awaited = 0;
  bool is_late = false;
  std::optional<uint32_t> far_ahead;
  {
    base::MutexLock lock(&mu_);
    far_ahead = far_ahead_;
  }
  if (far_ahead) return StoreNow(*far_ahead);
  {
    base::MutexLock lock(&mu_);
    if (broken_ || left_ || !awaited_) return;
    is_late = now - std::max(awaited_at_, moved_at_) > end_.host->op_timeout();
    if (!is_late && now - looked_at_ < end_.host->op_timeout() / kLooks) return;
    looked_at_ = now;
    awaited = *awaited_;
  }
  const uint32_t reached = Reached();
  {
    base::MutexLock lock(&mu_);
    const bool is_over = static_cast<int32_t>(reached - awaited) >= 0;
    if (is_over && awaited_ == awaited) awaited_.reset();
    const bool has_moved = std::exchange(seen_, reached).value_or(reached) != reached;
    if (has_moved) moved_at_ = now;
    if (is_over || has_moved || !is_late) return;
  }
  BreakLate(awaited, reached);
}

void PeerLinkEnd::BreakLate(uint32_t awaited, uint32_t reached) {
  comm::ProcessGroup& host = *end_.host;
  const char* const what = host.rank() == kSenderIndex
                               ? "no slot was free for parcel {}, only for {} before it"
                               : "parcel {} did not come, only {} before it";
  static_cast<void>(host.Fail(base::Error(
      absl::StatusCode::kDeadlineExceeded,
      "link {}: within {:.0f} s {}: rank {}, or one that it waits for, is stuck", host.name(),
      std::chrono::duration<double>(host.op_timeout()).count(),
      fmt::format(fmt::runtime(what), awaited, reached), host.WorldRank(1 - host.rank()))));
  EndAllWaits();
}

void PeerLinkEnd::Break(std::string_view reason) {
  end_.host->Abort(reason);
  EndAllWaits();
}

void PeerLinkEnd::EndAllWaits() {
  size_t latest = 0;
  uint32_t value = 0;
  {
    base::MutexLock lock(&mu_);
    if (std::exchange(broken_, true) || left_) return;
    latest = latest_;
    value = latest_value_;
  }
  try {
    EndWaits(latest, value);
  } catch (const kernels::DeviceError& error) {
    // Nothing waits on a device that has failed, and this thread may be anybody's.
    log::Warn("a link's waits are left to the device",
              {{"link", end_.host->name()}, {"why", error.what()}});
  }
}

uint32_t PeerLinkEnd::Reached() {
  uint32_t reached = 0;
  watch_->rescue().Read({&reached, 1}, word());
  return reached;
}

void PeerLinkEnd::StoreNow(uint32_t value) {
  const comm::Rescue::Store store{word(), value};
  watch_->rescue().StoreNow({&store, 1});
}

void PeerLinkEnd::EndWaits(size_t latest, uint32_t value) {
  // Waits are for a few parcels beyond what the word has reached.
  const uint32_t far_ahead = Reached() + kFarAhead;
  StoreNow(far_ahead);
  {
    base::MutexLock lock(&mu_);
    far_ahead_ = far_ahead;
  }
  // The peer may have done the same: stores of this end that were still queued undo it.
  const comm::Rescue::Store farewell{peer_word(), value + kFarAhead};
  watch_->rescue().StoreBehind(*stored_[latest], {&farewell, 1});
}

// Enqueues without the lock: where the queue is full, only Break may make room in it.
void PeerLinkEnd::Store(Stream& stream, uint32_t value) {
  size_t next = 0;
  {
    base::MutexLock lock(&mu_);
    if (broken_) return;
    next = 1 - latest_;
  }
  stream.WriteValue(peer_word(), value);
  stored_[next]->Record(stream);
  bool broken = false;
  {
    base::MutexLock lock(&mu_);
    latest_ = next;
    latest_value_ = value;
    broken = broken_;
  }
  if (broken) stream.WriteValue(peer_word(), value + kFarAhead);
}

bool PeerLinkEnd::Leave() {
  size_t latest = 0;
  {
    base::MutexLock lock(&mu_);
    if (broken_ || std::exchange(left_, true)) return false;
    latest = latest_;
  }
  stream_->Synchronize();
  stored_[latest]->Synchronize();
  return true;
}

void PeerLinkEnd::TellLeft() {
  end_.peer_word.reset();
  static_cast<void>(Tell("left"));  // an error is the link's
}

void PeerLinkEnd::AwaitPeerLeft() {
  {
    base::MutexLock lock(&mu_);
    if (!left_) return;
  }
  // An error says that the peer is gone, and with it what it mapped.
  static_cast<void>(Hear());
}

void PeerLinkEnd::Count(comm::CommOp op, int64_t bytes) {
  base::MutexLock lock(&mu_);
  comm::OpStats& stats = stats_.ops[static_cast<size_t>(op)];
  ++stats.num_calls;
  stats.payload_bytes += bytes;
}

comm::CommStats PeerLinkEnd::Counted() const {
  base::MutexLock lock(&mu_);
  return stats_;
}

Status PeerLinkEnd::Tell(const std::string& text) { return SendText(*end_.host, *stream_, text); }

StatusOr<std::string> PeerLinkEnd::Hear() { return ReceiveText(*end_.host, *stream_); }

PeerSender::PeerSender(PeerEnd end, kernels::Device* device)
    : PeerLinkEnd(std::move(end), device), ready_(device->CreateEvent()) {
  CheckLinkMembers(*end_.host, kSenderIndex);
  Watch();
}

StatusOr<PeerSender::Places> PeerSender::LearnPlaces() {
  ASSIGN_OR_RETURN(const std::string text, Hear());
  Places places;
  for (const auto& entry : nlohmann::json::from_msgpack(text)) {
    const auto& bytes = entry.get_binary();
    const std::string name(bytes.begin(), bytes.end());
    std::unique_ptr<kernels::DeviceBuffer>& mapping = mappings_[name];
    std::string why_not;
    if (mapping == nullptr) mapping = device_->peers()->Import(name, &why_not);
    if (mapping == nullptr) {
      return base::Unavailable("{}: the receiver's memory cannot be mapped: {}", end_.host->name(),
                               why_not);
    }
    places.push_back(mapping->data());
  }
  return places;
}

Status PeerSender::Begin(Stream& /*stream*/, const Pass& pass) {
  RETURN_IF_ERROR(status());
  if (pass_ != nullptr) CHECK_EQ(num_sent_, pass_->size()) << end_.host->name();
  auto known = places_.find(pass.id);
  if (known == places_.end()) {
    ASSIGN_OR_RETURN(Places places, LearnPlaces());
    known = places_.emplace(pass.id, std::move(places)).first;
  }
  pass_ = &known->second;
  num_sent_ = 0;
  return OkStatus();
}

Status PeerSender::Send(Stream& stream, const Parcel& parcel) {
  RETURN_IF_ERROR(status());
  CHECK_LT(num_sent_, pass_->size()) << end_.host->name();
  ready_->Record(stream);
  stream_->Wait(*ready_);
  Await(*stream_, total_ + 1);
  RETURN_IF_ERROR(TimeParcel(*stream_, [&] {
    device_->Copy(*stream_, (*pass_)[num_sent_], parcel.tensor.data, parcel.tensor.Bytes());
    return OkStatus();
  }));
  Store(*stream_, total_ + 1);
  ++total_;
  ++num_sent_;
  std::unique_ptr<kernels::Event>& sent = sent_[{parcel.chunk, parcel.slot}];
  if (sent == nullptr) sent = device_->CreateEvent();
  sent->Record(*stream_);
  Count(comm::CommOp::kSend, parcel.tensor.Bytes());
  return OkStatus();
}

Status PeerSender::WaitSent(Stream& stream, int chunk, int slot) {
  const auto sent = sent_.find({chunk, slot});
  if (sent != sent_.end()) stream.Wait(*sent->second);
  return status();
}

// Buffers are waited for one by one, by whoever writes them next.
Status PeerSender::WaitAllSent(Stream& /*stream*/) { return status(); }

void PeerSender::Detach() {
  if (!Leave()) return;
  places_.clear();
  mappings_.clear();
  TellLeft();
}

PeerReceiver::PeerReceiver(PeerEnd end, kernels::Device* device)
    : PeerLinkEnd(std::move(end), device) {
  CheckLinkMembers(*end_.host, kReceiverIndex);
  Watch();
}

// One text, whatever the number of parcels: the peer may be sending one to this end.
Status PeerReceiver::NamePlaces() {
  nlohmann::json names = nlohmann::json::array();
  for (const Parcel& parcel : parcels_) {
    std::string why_not;
    const std::string name = device_->peers()->Export(parcel.tensor.data, &why_not);
    if (name.empty()) {
      return base::Unavailable("{}: memory cannot be shared: {}", end_.host->name(), why_not);
    }
    names.push_back(nlohmann::json::binary({name.begin(), name.end()}));
  }
  const std::vector<uint8_t> text = nlohmann::json::to_msgpack(names);
  return Tell({text.begin(), text.end()});
}

Status PeerReceiver::Begin(Stream& stream, std::vector<Parcel> parcels, const Pass& pass) {
  RETURN_IF_ERROR(status());
  CHECK_EQ(num_taken_, parcels_.size()) << end_.host->name();
  for (const auto& [slot, held] : held_) {
    CHECK(!held) << end_.host->name() << ": chunk " << slot.first << ", slot " << slot.second;
  }
  before_ += static_cast<uint32_t>(parcels_.size());
  parcels_ = std::move(parcels);
  num_granted_ = num_taken_ = 0;
  if (!std::exchange(named_[pass.id], true)) RETURN_IF_ERROR(NamePlaces());
  Grant(stream);
  return OkStatus();
}

void PeerReceiver::Grant(Stream& stream) {
  const size_t before = num_granted_;
  while (num_granted_ < parcels_.size()) {
    const Parcel& next = parcels_[num_granted_];
    bool& held = held_[{next.chunk, next.slot}];
    if (held) break;
    held = true;
    ++num_granted_;
  }
  if (num_granted_ == before) return;
  Store(stream, before_ + static_cast<uint32_t>(num_granted_));
}

Status PeerReceiver::WaitReady(Stream& stream, int chunk, int slot) {
  RETURN_IF_ERROR(status());
  CHECK_LT(num_taken_, num_granted_) << end_.host->name() << ": nobody would send";
  const Parcel& parcel = parcels_[num_taken_++];
  CHECK(parcel.chunk == chunk && parcel.slot == slot)
      << end_.host->name() << ": the next parcel is for chunk " << parcel.chunk << ", slot "
      << parcel.slot << ", not chunk " << chunk << ", slot " << slot;
  Await(stream, before_ + static_cast<uint32_t>(num_taken_));
  Count(comm::CommOp::kRecv, parcel.tensor.Bytes());
  return OkStatus();
}

void PeerReceiver::Detach() {
  if (Leave()) TellLeft();
}

void PeerReceiver::Release(Stream& stream, int chunk, int slot) {
  if (!status().ok()) return;
  bool& held = held_[{chunk, slot}];
  CHECK(held) << end_.host->name() << ": chunk " << chunk << ", slot " << slot;
  held = false;
  Grant(stream);
}

}  // namespace mt::parallel
