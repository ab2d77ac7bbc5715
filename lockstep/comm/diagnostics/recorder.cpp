#include "lockstep/comm/diagnostics/recorder.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <optional>
#include <ostream>
#include <sstream>
#include <thread>

#include <c10/util/StringUtil.h>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/json_text.h"

namespace lockstep::comm {
namespace {

constexpr size_t kMaxDims = 5;

uint64_t now() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
}

/// The small fields of an entry in one word.
struct Fields {
  uint8_t state;
  uint8_t reduce_op;
  int8_t dtype;
  uint8_t dims;
  uint32_t num_tensors;
};
static_assert(sizeof(Fields) == sizeof(uint64_t));

uint64_t pack(Fields fields) { return std::bit_cast<uint64_t>(fields); }
Fields unpack(uint64_t word) { return std::bit_cast<Fields>(word); }

uint64_t total_bytes(at::ArrayRef<at::Tensor> tensors) {
  uint64_t bytes = 0;
  for (const auto& tensor : tensors) {
    if (tensor.defined() && tensor.layout() == at::kStrided) bytes += tensor.nbytes();
  }
  return bytes;
}

std::string_view state_name(Record::State state) {
  if (state == Record::State::Arrived) return "arrived";
  return state == Record::State::Done ? "done" : "failed";
}

}  // namespace

// A sequence lock: `version` is odd while the owner writes. Every field is an atomic, stored with release and loaded
// with acquire, which orders them against `version` without a fence.
struct Recorder::Entry {
  std::atomic<uint64_t> version{0};
  std::atomic<uint64_t> sequence{0};
  std::atomic<const char*> operation{nullptr};
  std::atomic<uint64_t> operation_size{0};
  std::atomic<uint64_t> fields{0};
  std::atomic<uint64_t> bytes{0};
  std::atomic<uint64_t> start{0};
  std::atomic<uint64_t> end{0};
  std::atomic<const char*> file{nullptr};
  std::atomic<uint64_t> line{0};
  std::array<std::atomic<int64_t>, kMaxDims> shape{};
  std::atomic<const char*> owner_kind{nullptr};
  std::atomic<const char*> owner_operation{nullptr};
  std::atomic<uint64_t> owner_sizes{0};
  std::atomic<uint64_t> owner_number{0};

  std::optional<Record> read() const;
};

struct alignas(128) Recorder::Ring {
  std::atomic<uint64_t> count{0};
  std::array<Entry, kCapacity> entries;
};

std::optional<Record> Recorder::Entry::read() const {
  constexpr auto kAcquire = std::memory_order_acquire;
  for (int attempt = 0; attempt < 100; ++attempt) {
    const uint64_t before = version.load(kAcquire);
    if (before == 0) return std::nullopt;
    if (before % 2 == 1) continue;
    Record record;
    record.sequence = sequence.load(kAcquire);
    record.operation = {operation.load(kAcquire), operation_size.load(kAcquire)};
    const Fields packed = unpack(fields.load(kAcquire));
    record.bytes = bytes.load(kAcquire);
    record.start = std::chrono::nanoseconds(start.load(kAcquire));
    record.end = std::chrono::nanoseconds(end.load(kAcquire));
    record.site = {file.load(kAcquire), static_cast<uint32_t>(line.load(kAcquire))};
    const size_t dims = std::min<size_t>(packed.dims, kMaxDims);
    for (size_t d = 0; d < dims; ++d) record.shape.push_back(shape[d].load(kAcquire));
    const uint64_t sizes = owner_sizes.load(kAcquire);
    record.owner = {{owner_kind.load(kAcquire), sizes >> 32},
                    owner_number.load(kAcquire),
                    {owner_operation.load(kAcquire), sizes & 0xffffffffu}};
    if (version.load(std::memory_order_relaxed) != before) continue;
    record.reduce_op = static_cast<ReduceOp::Kind>(packed.reduce_op);
    record.dtype = static_cast<at::ScalarType>(packed.dtype);
    record.shape_cut = packed.dims > kMaxDims;
    record.num_tensors = packed.num_tensors;
    record.state = static_cast<Record::State>(packed.state);
    return record;
  }
  return std::nullopt;
}

Recorder::Recorder(int size) : size_(size), rings_(new Ring[static_cast<size_t>(size)]) {}
Recorder::~Recorder() = default;

void Recorder::begin(int rank, uint64_t sequence, const CollectiveCall& call) {
  constexpr auto kRelease = std::memory_order_release;
  Ring& ring = rings_[static_cast<size_t>(rank)];
  const uint64_t count = ring.count.load(std::memory_order_relaxed);
  Entry& entry = ring.entries[count % kCapacity];
  const uint64_t version = entry.version.load(std::memory_order_relaxed);
  entry.version.store(version + 1, std::memory_order_relaxed);
  entry.sequence.store(sequence, kRelease);
  entry.operation.store(call.operation.data(), kRelease);
  entry.operation_size.store(call.operation.size(), kRelease);
  Fields fields{static_cast<uint8_t>(Record::State::Arrived), static_cast<uint8_t>(call.reduce_op),
                static_cast<int8_t>(at::ScalarType::Undefined), 0, static_cast<uint32_t>(call.given().size())};
  if (!call.given().empty() && call.given()[0].defined()) {
    const auto& first = call.given()[0];
    const auto sizes = first.sizes();
    fields.dtype = static_cast<int8_t>(first.scalar_type());
    fields.dims = static_cast<uint8_t>(std::min<size_t>(sizes.size(), kMaxDims + 1));
    for (size_t d = 0; d < std::min(sizes.size(), kMaxDims); ++d) entry.shape[d].store(sizes[d], kRelease);
  }
  entry.fields.store(pack(fields), kRelease);
  entry.bytes.store(total_bytes(call.given()), kRelease);
  entry.start.store(now(), kRelease);
  entry.end.store(0, kRelease);
  entry.file.store(call.site.file, kRelease);
  entry.line.store(call.site.line, kRelease);
  entry.owner_kind.store(call.owner.kind.data(), kRelease);
  entry.owner_operation.store(call.owner.operation.data(), kRelease);
  entry.owner_sizes.store(call.owner.kind.size() << 32 | call.owner.operation.size(), kRelease);
  entry.owner_number.store(call.owner.number, kRelease);
  entry.version.store(version + 2, kRelease);
  ring.count.store(count + 1, kRelease);
}

void Recorder::end(int rank, Record::State state) {
  constexpr auto kRelease = std::memory_order_release;
  Ring& ring = rings_[static_cast<size_t>(rank)];
  const uint64_t count = ring.count.load(std::memory_order_relaxed);
  if (count == 0) return;
  Entry& entry = ring.entries[(count - 1) % kCapacity];
  const uint64_t version = entry.version.load(std::memory_order_relaxed);
  entry.version.store(version + 1, std::memory_order_relaxed);
  Fields fields = unpack(entry.fields.load(std::memory_order_relaxed));
  fields.state = static_cast<uint8_t>(state);
  entry.fields.store(pack(fields), kRelease);
  entry.end.store(now(), kRelease);
  entry.version.store(version + 2, kRelease);
}

std::optional<Record> Recorder::last(int rank) const {
  const Ring& ring = rings_[static_cast<size_t>(rank)];
  while (const uint64_t count = ring.count.load(std::memory_order_acquire)) {
    if (auto record = ring.entries[(count - 1) % kCapacity].read()) return record;
    std::this_thread::yield();  // the owner is writing
  }
  return std::nullopt;
}

std::vector<Record> Recorder::entries(int rank) const {
  const Ring& ring = rings_[static_cast<size_t>(rank)];
  const uint64_t count = ring.count.load(std::memory_order_acquire);
  std::vector<Record> records;
  for (uint64_t i = count > kCapacity ? count - kCapacity : 0; i < count; ++i) {
    auto record = ring.entries[i % kCapacity].read();
    // The owner may have run ahead and put a younger call in this place.
    if (record && (records.empty() || record->sequence > records.back().sequence)) records.push_back(*record);
  }
  return records;
}

std::string Record::describe() const {
  std::ostringstream out;
  const char* separator = begin_description(out, operation, owner, reduce_op);
  if (dtype != at::ScalarType::Undefined) {
    out << separator << dtype_name(dtype) << '[';
    for (size_t d = 0; d < shape.size(); ++d) out << (d == 0 ? "" : ", ") << shape[d];
    out << (shape_cut ? ", ...]" : "]");
    separator = ", ";
  }
  if (num_tensors > 1) out << separator << num_tensors << " tensors";
  out << ')';
  return out.str();
}

void Recorder::dump(std::ostream& out, std::string_view group, int first_rank) const {
  for (int rank = 0; rank < size_; ++rank) {
    for (const Record& record : entries(rank)) {
      out << "{\"group\": " << json_quoted(group) << ", \"rank\": " << first_rank + rank
          << ", \"sequence\": " << record.sequence << ", \"call\": " << json_quoted(record.describe());
      if (record.site) out << ", \"site\": " << json_quoted(c10::str(record.site));
      out << ", \"tensors\": " << record.num_tensors << ", \"bytes\": " << record.bytes
          << ", \"start_ns\": " << record.start.count() << ", \"end_ns\": " << record.end.count() << ", \"state\": \""
          << state_name(record.state) << "\"}\n";
    }
  }
}

}  // namespace lockstep::comm
