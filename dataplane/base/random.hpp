// A seeded generator whose sequence is the same on every machine (std distributions are not). Not for keys.
// Source: splitmix64, Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
#pragma once

#include <cstdint>

namespace lk {

class Random {
 public:
  explicit Random(std::uint64_t seed) noexcept : state_(seed) {}

  std::uint64_t next() noexcept {
    state_ += 0x9e3779b97f4a7c15ULL;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  // Uniform in [0, bound); bound > 0. The bias of the multiply is below 2^-32 for bounds that fit 32 bits.
  std::uint64_t below(std::uint64_t bound) noexcept {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(next()) * bound) >> 64);
  }
  double unit() noexcept { return static_cast<double>(next() >> 11) * 0x1.0p-53; }  // [0, 1)
  bool chance(double probability) noexcept { return unit() < probability; }

 private:
  std::uint64_t state_;
};

}  // namespace lk
