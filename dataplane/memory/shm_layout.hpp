// What lies where in the memory that an agent shares with one client process, and the words of both rings.
//
//   header · submit ring · completion ring · ledger · scratch · data
//
// The client writes submit entries and data, and can write everything else too: it is not trusted. So the agent keeps
// its own ShmLayout (from plan_layout, or from check_header at a restart), never reads a size from the memory again,
// and copies an entry before it checks it. Ledger and scratch are here so that a restarted agent goes on from them.
// All offsets of the layout are in bytes from the start of the region, at multiples of 64; the offsets of an entry are
// in bytes from the start of the data area. Little endian. No DPDK: the client library includes this file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "dataplane/api/op.hpp"
#include "dataplane/base/dtype.hpp"
#include "dataplane/base/status.hpp"
#include "dataplane/base/units.hpp"

namespace lk {

inline constexpr std::uint64_t kShmMagic = 0x314d48534b4cULL;  // "LKSHM1"
inline constexpr std::uint32_t kShmVersion = 1;
inline constexpr Bytes kShmAlign = 64;
inline constexpr std::uint32_t kMaxShmSlots = 1U << 16;

// One collective call of one rank.
struct SubmitEntry {
  std::uint64_t op_no;  // OpNumber in its group, from 1, without gaps
  std::uint8_t kind;    // Collective
  std::uint8_t redop;   // RedOp; 0 for a broadcast
  std::uint8_t dtype;   // DType
  std::uint8_t flags;   // none is defined: 0
  std::uint16_t rank;
  std::uint16_t group;  // the number that the agent gave at join
  std::uint16_t root;   // of a broadcast, else 0
  std::uint16_t reserved[3];
  std::uint64_t count;       // elements
  std::uint64_t in_offset;   // bytes in the data area
  std::uint64_t out_offset;  // same as in_offset: in place; else the two must not overlap
  std::uint64_t cookie;      // comes back in the completion
  std::uint64_t reserved_tail;
};
static_assert(sizeof(SubmitEntry) == 64 && std::is_trivially_copyable_v<SubmitEntry>);

struct CompletionEntry {
  std::uint64_t cookie;
  std::uint64_t op_no;
  std::uint8_t status;  // lk::Status
  std::uint8_t reserved0;
  std::uint16_t rank;       // mismatch: the other rank; node_lost: a rank on the lost node
  std::uint16_t lost_node;  // kNoId16 if none
  std::uint16_t reserved1;
  std::uint32_t progress_done;  // chunks
  std::uint32_t progress_total;
};
static_assert(sizeof(CompletionEntry) == 32 && std::is_trivially_copyable_v<CompletionEntry>);

struct ShmLayout {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t submit_slots;      // power of two
  std::uint32_t completion_slots;  // power of two
  std::uint32_t reserved;
  Bytes submit_offset;
  Bytes completion_offset;
  Bytes ledger_offset, ledger_bytes;
  Bytes scratch_offset, scratch_bytes;
  Bytes data_offset, data_bytes;
  Bytes total_bytes;

  friend bool operator==(const ShmLayout&, const ShmLayout&) noexcept = default;
};
static_assert(std::is_trivially_copyable_v<ShmLayout>);

// First bytes of the region. `layout` is written once, before the client gets the descriptor.
struct ShmHeader {
  ShmLayout layout;
  std::uint64_t incarnation;  // of the agent that made the region
};
inline constexpr Bytes kShmHeaderBytes = 256;
static_assert(sizeof(ShmHeader) <= kShmHeaderBytes);

struct ShmSizes {
  std::uint32_t submit_slots = 256;  // rounded up to a power of two
  std::uint32_t completion_slots = 256;
  Bytes ledger_bytes = 0;
  Bytes scratch_bytes = 0;
  Bytes data_bytes = 0;
};

// The layout for these sizes; the data area begins on a page. Throws InputError for sizes that make no sense.
ShmLayout plan_layout(const ShmSizes& sizes);

// The layout in the first bytes of `region`, copied and then checked whole against its size: an agent that finds its
// memory again, a client that gets it. Throws InputError with what is wrong.
ShmLayout check_header(const std::byte* region, Bytes region_bytes);

// Whether an entry, already copied, can be carried out: known words, both buffers inside the data area, aligned to the
// type, equal or apart. kInvalid or kUnsupported else. Group and rank are checked by who knows the groups.
Status check_submit(const SubmitEntry& entry, Bytes data_bytes) noexcept;

}  // namespace lk
