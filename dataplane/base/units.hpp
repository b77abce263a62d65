// Units and time. A quantity's unit is in its type or in its name, everywhere: _ns, _bytes, _GBps (10^9 byte/s, one
// direction), _gbps (10^9 bit/s).
#pragma once

#include <cstdint>

namespace lk {

using Nanos = std::int64_t;   // a time or a span, in nanoseconds; never negative for a time
using Bytes = std::uint64_t;  // a size

inline constexpr Nanos kMicro = 1'000;
inline constexpr Nanos kMilli = 1'000'000;
inline constexpr Nanos kSecond = 1'000'000'000;
inline constexpr Nanos kNever = INT64_MAX;  // a deadline that never comes

inline constexpr Bytes kKiB = 1024;
inline constexpr Bytes kMiB = 1024 * kKiB;
inline constexpr Bytes kGiB = 1024 * kMiB;

// GB/s is byte/ns: `bytes / GBps` is a time in ns.
using GBps = double;

}  // namespace lk
