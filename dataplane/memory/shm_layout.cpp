#include "dataplane/memory/shm_layout.hpp"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "dataplane/base/error.hpp"
#include "dataplane/memory/shm_ring.hpp"

namespace lk {
namespace {

constexpr Bytes kPage = 4096;
constexpr Bytes kMostBytes = Bytes{1} << 46;  // each area; sums of a few of them cannot overflow

constexpr Bytes up_to(Bytes value, Bytes align) { return (value + align - 1) / align * align; }

std::uint32_t slots(const char* what, std::uint32_t wanted) {
  if (wanted < 2 || wanted > kMaxShmSlots) {
    throw InputError(fmt::format("shared memory: {} slots {}, expected 2 to {}", what, wanted, kMaxShmSlots));
  }
  return std::bit_ceil(wanted);
}

}  // namespace

ShmLayout plan_layout(const ShmSizes& sizes) {
  if (sizes.ledger_bytes > kMostBytes || sizes.scratch_bytes > kMostBytes || sizes.data_bytes > kMostBytes) {
    throw InputError(fmt::format("shared memory: ledger {}, scratch {}, data {} bytes, expected at most 2^46 each",
                                 sizes.ledger_bytes, sizes.scratch_bytes, sizes.data_bytes));
  }
  ShmLayout out{};
  out.magic = kShmMagic;
  out.version = kShmVersion;
  out.submit_slots = slots("submit", sizes.submit_slots);
  out.completion_slots = slots("completion", sizes.completion_slots);
  out.submit_offset = kShmHeaderBytes;
  out.completion_offset = out.submit_offset + shm_ring_bytes<SubmitEntry>(out.submit_slots);
  out.ledger_offset = out.completion_offset + shm_ring_bytes<CompletionEntry>(out.completion_slots);
  out.ledger_bytes = up_to(sizes.ledger_bytes, kShmAlign);
  out.scratch_offset = out.ledger_offset + out.ledger_bytes;
  out.data_offset = up_to(out.scratch_offset + sizes.scratch_bytes, kPage);
  out.scratch_bytes = out.data_offset - out.scratch_offset;  // up to the page: no gap, so each size has one layout
  out.data_bytes = up_to(sizes.data_bytes, kPage);
  out.total_bytes = out.data_offset + out.data_bytes;
  return out;
}

ShmLayout check_header(const std::byte* region, Bytes region_bytes) {
  if (region_bytes < kShmHeaderBytes) {
    throw InputError(fmt::format("shared memory: {} bytes, expected at least {}", region_bytes, kShmHeaderBytes));
  }
  ShmLayout found{};
  std::memcpy(&found, region, sizeof found);
  if (found.magic != kShmMagic) throw InputError("shared memory: no Lanekeeper header at its start");
  if (found.version != kShmVersion) {
    throw InputError(fmt::format("shared memory: version {}, expected {}", found.version, kShmVersion));
  }
  // There is one layout for given sizes, so whatever differs from it is damage.
  const ShmLayout expected = plan_layout({.submit_slots = found.submit_slots,
                                          .completion_slots = found.completion_slots,
                                          .ledger_bytes = found.ledger_bytes,
                                          .scratch_bytes = found.scratch_bytes,
                                          .data_bytes = found.data_bytes});
  if (!(found == expected)) throw InputError("shared memory: offsets and sizes of its header contradict each other");
  if (found.total_bytes != region_bytes) {
    throw InputError(
        fmt::format("shared memory: header says {} bytes, the region has {}", found.total_bytes, region_bytes));
  }
  return found;
}

Status check_submit(const SubmitEntry& entry, Bytes data_bytes) noexcept {
  if (entry.kind > static_cast<std::uint8_t>(Collective::kBroadcast) ||
      entry.redop > static_cast<std::uint8_t>(RedOp::kAvg) || entry.dtype > static_cast<std::uint8_t>(DType::kBF16)) {
    return Status::kUnsupported;
  }
  if (entry.flags != 0 || entry.op_no == 0) return Status::kInvalid;
  const Bytes element = size_of(static_cast<DType>(entry.dtype));
  if (entry.count > data_bytes / element) return Status::kInvalid;  // before the product, which could overflow
  const Bytes length = entry.count * element;
  if (entry.in_offset > data_bytes - length || entry.out_offset > data_bytes - length) return Status::kInvalid;
  if (entry.in_offset % element != 0 || entry.out_offset % element != 0) return Status::kInvalid;
  const Bytes apart =
      entry.in_offset > entry.out_offset ? entry.in_offset - entry.out_offset : entry.out_offset - entry.in_offset;
  if (apart != 0 && apart < length) return Status::kInvalid;
  return Status::kOk;
}

}  // namespace lk
